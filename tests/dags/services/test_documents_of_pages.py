"""How the pages read the object store: often, and without a reader who waits for what did not change."""

import botocore.session
import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from slipway.airflow.page.documents import FRESH_S, MAX_BYTES, STALE_S, Documents
from slipway.airflow.step_documents import s3_client
from slipway.tasks.pages.reading import Stored
from tests.support.waiting import until

URI = "s3://slipway/one"


class Store:
    """Documents of the bucket at a time that a test sets, and the answers of the store."""

    def __init__(self, client):
        self.now_s, self.answers = 0.0, []
        client.meta.events.register("after-call.s3.GetObject", self._answered)
        self.documents = Documents(lambda: client, lambda: self.now_s)

    def _answered(self, http_response, **_):
        self.answers.append(http_response.status_code)

    def read(self, *uris):
        found = self.documents.read(dict.fromkeys(uris or [URI], bytes.decode))
        return [found[uri] for uri in uris or [URI]]


@pytest.fixture
def store(bucket):
    return Store(s3_client("aws_default"))


def test_a_document_is_sent_again_only_when_it_has_changed(store, bucket):
    assert store.read() == [Stored()]
    bucket.put_object(Key="one", Body=b"a")
    for body, expected in (("a", 200), ("a", 304), ("b", 200)):
        bucket.put_object(Key="one", Body=body.encode())
        store.now_s += STALE_S + 1
        assert store.read() == [Stored(body)]
        assert store.answers[-1] == expected


def test_what_was_read_lately_is_shown_at_once_and_read_again_in_the_background(store, bucket):
    bucket.put_object(Key="one", Body=b"a")
    store.read()
    bucket.put_object(Key="one", Body=b"b")
    store.now_s += FRESH_S
    assert (store.read(), store.answers) == ([Stored("a")], [200])

    store.now_s += 1
    assert store.read() == [Stored("a")]
    until(lambda: store.read() == [Stored("b")])
    assert store.answers == [200, 200]


def test_that_there_is_none_is_known_as_well(store, bucket):
    store.read()
    store.now_s += FRESH_S
    assert (store.read(), store.answers) == ([Stored()], [404])

    bucket.put_object(Key="one", Body=b"a")
    store.now_s += 1
    assert store.read() == [Stored()]
    until(lambda: store.read() == [Stored("a")])


def test_a_document_that_cannot_be_read_is_a_problem_of_it_alone(store, bucket):
    bucket.put_object(Key="one", Body=b"a")
    bucket.put_object(Key="large", Body=b"x" * (MAX_BYTES + 1))
    bucket.put_object(Key="torn", Body=b"\xff")

    one, large, torn, elsewhere = store.read(URI, "s3://slipway/large", "s3://slipway/torn", "s3://not-there/one")

    assert one == Stored("a")
    assert [bool(each.problem) for each in (large, torn, elsewhere)] == [True, True, True]
    assert "NoSuchBucket" in elsewhere.problem


def test_a_store_that_does_not_answer_is_the_problem_of_every_document():
    asked = []

    def client():
        asked.append("")
        raise ConnectionError

    found = Documents(client).read(dict.fromkeys((f"s3://slipway/{number}" for number in range(200)), bytes.decode))

    assert {stored.problem for stored in found.values()} == {"the object store does not answer"}
    assert len(asked) < len(found)


class Nobody:
    """A provider of credentials that has none."""

    def load_credentials(self):
        return None


def no_credentials():
    session = botocore.session.Session()
    session.register_component("credential_provider", Nobody())
    return session.create_client("s3", region_name="us-west-2", endpoint_url="http://127.0.0.1:9")


def no_connection():
    raise AirflowNotFoundException("The conn_id `not_there` isn't defined")


@pytest.mark.parametrize(("client", "why"), [(no_credentials, "credentials"), (no_connection, "not_there")])
def test_a_process_that_may_not_ask_the_store_says_so_and_not_that_it_is_away(client, why):
    (found,) = Documents(client).read({URI: bytes.decode}).values()

    assert why in found.problem
    assert "does not answer" not in found.problem
