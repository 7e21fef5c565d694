"""S3 keeps the promises of the protocol, and its refusals become errors that a person can act on."""

import threading
import uuid
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from slipway.tasks.adapters.store.object_store import LostRaceError, NotFoundError, StoredObject
from slipway.tasks.adapters.store.parts import PART_BYTES
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.site import ObjectStoreSite
from tests.fakes.store.object_store_contract import ObjectStoreContract
from tests.local.core.servers import NO_BUCKET, PLANTED, connected
from tests.support import plain_http


class TestS3ObjectStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, place):
        return connected(place)

    @pytest.fixture
    def root(self, place):
        return place.root

    def test_a_link_opens_the_document_without_credentials_for_three_days(self, store, root):
        store.put_bytes(f"{root}/report.html", b"<p>", content_type="text/html")
        link = store.link(f"{root}/report.html")

        answer = plain_http.get(link)
        assert (answer.content, answer.headers["Content-Type"]) == (b"<p>", "text/html")
        assert httpx.URL(link).params["X-Amz-Expires"] == "259200"
        for forged in (link.replace("=259200", "=604800"), link.replace("report", "other"), f"{link}0"):
            assert plain_http.get(forged).status_code == 403


@pytest.fixture(scope="module")
def refuser():
    """A store, and the handler of its server, which answers everything with one status and code."""

    class Handler(BaseHTTPRequestHandler):
        status, code = 200, ""

        def answer(self):
            body = f"<?xml version='1.0'?><Error><Code>{self.code}</Code><Message>no</Message></Error>".encode()
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(self.status)
            self.send_header("Content-Length", "0" if self.command == "HEAD" else str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = answer  # noqa: N815 - the names that the server calls

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    site = ObjectStoreSite(bucket=NO_BUCKET, endpoint=f"http://127.0.0.1:{server.server_port}")
    yield S3ObjectStore(site, PLANTED), Handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def refusing(refuser):
    """The store, whose server answers with this status and code from now on."""
    store, handler = refuser

    def refuse(status, code):
        handler.status, handler.code = status, code
        return store

    return refuse


@pytest.fixture(scope="module")
def unreachable():
    """A store whose server does not exist."""
    return S3ObjectStore(ObjectStoreSite(bucket=NO_BUCKET, endpoint="http://127.0.0.1:9"), PLANTED)


@pytest.fixture
def losing_answers(object_store, credentials):
    """The tests' server behind one that passes a PUT on and hangs up; counts what it has passed on."""
    passed = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            address, headers = object_store.endpoint + self.path, dict(self.headers)
            answer = plain_http.request(self.command, address, content=body, headers=headers)
            if self.command == "PUT":
                passed.append(answer.status_code)
                if len(passed) == 1:
                    self.close_connection = True
                    return
            self.send_response(answer.status_code)
            for name in [name for name in ("Content-Length", "ETag", "Last-Modified") if name in answer.headers]:
                self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_PUT = answer  # noqa: N815 - the names that the server calls

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    yield S3ObjectStore(object_store.model_copy(update={"endpoint": endpoint})), passed
    server.shutdown()
    server.server_close()


def large(path):
    """A file that is uploaded in parts."""
    made = path.with_name("large")
    made.write_bytes(bytes(PART_BYTES + 1))
    return made


CALLS = {
    "read": lambda store, path: store.read_bytes(f"s3://{NO_BUCKET}/a"),
    "describe": lambda store, path: store.describe(f"s3://{NO_BUCKET}/a"),
    "put": lambda store, path: store.put_bytes(f"s3://{NO_BUCKET}/a", b""),
    "upload": lambda store, path: store.put_file(path, f"s3://{NO_BUCKET}/a"),
    "upload in parts": lambda store, path: store.put_file(large(path), f"s3://{NO_BUCKET}/a"),
    "download": lambda store, path: store.get_file(f"s3://{NO_BUCKET}/a", path.with_name("down"), 1),
    "copy": lambda store, path: store.copy(
        StoredObject(f"s3://{NO_BUCKET}/a", 1, '"0"', datetime.now(UTC)), f"s3://{NO_BUCKET}/b"
    ),
    "list": lambda store, path: list(store.list(f"s3://{NO_BUCKET}/a")),
}


def test_a_writer_whose_answer_was_lost_has_won_the_race_and_not_lost_it_to_itself(losing_answers, place):
    store, passed = losing_answers
    uri = f"{place.root}/channel"

    etag = store.put_if(uri, b"the first", etag=None)

    assert passed == [200, 412]
    assert store.read_with_etag(uri) == (b"the first", etag)
    with pytest.raises(LostRaceError):
        store.put_if(uri, b"the second", etag=None)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "InvalidAccessKeyId", InputError),
        (403, "SignatureDoesNotMatch", InputError),
        (403, "AccessDenied", InputError),
        (503, "SlowDown", UnavailableError),
    ],
)
def test_a_refusal_is_told_apart_from_a_busy_store(refusing, tmp_path, call, status, code, expected):
    (tmp_path / "file").write_bytes(b"x")

    with pytest.raises(expected) as refused:
        CALLS[call](refusing(status, code), tmp_path / "file")

    assert "http://127.0.0.1" in str(refused.value)
    assert NO_BUCKET in str(refused.value)


@pytest.mark.parametrize(("status", "code"), [(400, "ExpiredToken"), (404, "NoSuchUpload")])
def test_credentials_that_ran_out_and_an_upload_that_is_over_are_worth_another_try(refusing, status, code):
    with pytest.raises(UnavailableError) as caught:
        refusing(status, code).read_bytes(f"s3://{NO_BUCKET}/a")

    assert caught.value.found == code


def test_a_refusal_of_an_unknown_kind_says_where_to_look(refusing):
    with pytest.raises(InputError) as caught:
        refusing(400, "NotImplemented").read_bytes(f"s3://{NO_BUCKET}/a")

    assert caught.value.found.startswith("NotImplemented, ")
    assert "correct object_store in the site file" in caught.value.remedy


@pytest.mark.parametrize("call", CALLS)
def test_what_a_store_does_not_implement_is_not_tried_again(refusing, tmp_path, call):
    (tmp_path / "file").write_bytes(b"x")

    with pytest.raises(InputError) as caught:
        CALLS[call](refusing(501, "NotImplemented"), tmp_path / "file")

    assert caught.value.expected == "a store that implements S3"


def test_another_region_is_named_as_such(refusing):
    with pytest.raises(InputError) as caught:
        refusing(400, "AuthorizationHeaderMalformed").read_bytes(f"s3://{NO_BUCKET}/a")

    assert "another region" in caught.value.what
    assert "object_store.region" in caught.value.remedy


@pytest.mark.parametrize("call", CALLS)
def test_a_bucket_that_does_not_exist_is_named_with_its_endpoint(object_store, credentials, tmp_path, call):
    (tmp_path / "file").write_bytes(b"x")
    store = connected(object_store)

    with pytest.raises(InputError) as caught:
        CALLS[call](store, tmp_path / "file")

    assert f"bucket {NO_BUCKET} does not exist at {object_store.endpoint or 'Amazon'}" in caught.value.what


def test_the_bucket_of_a_new_site_is_created_once(object_store, credentials):
    if object_store.endpoint is None:
        pytest.skip("makes a bucket, which on Amazon S3 would cost money and stay")
    place = object_store.model_copy(update={"bucket": f"slipway-tests-{uuid.uuid4().hex[:12]}"})
    store = S3ObjectStore(place)

    assert [store.ensure_bucket(), store.ensure_bucket()] == [True, False]
    store.put_bytes(f"{place.root}/object", b"{}")
    assert store.read_bytes(f"{place.root}/object") == b"{}"


def test_a_store_that_is_out_of_reach_names_the_policies_that_may_block_it(unreachable):
    with pytest.raises(UnavailableError) as caught:
        unreachable.ensure_bucket()

    assert "object-store or site-object-store" in caught.value.remedy
    assert "object_store.networks" in caught.value.remedy


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_is_down_is_unavailable(unreachable, tmp_path, call):
    (tmp_path / "file").write_bytes(b"x")

    with pytest.raises(UnavailableError) as caught:
        CALLS[call](unreachable, tmp_path / "file")

    assert caught.value.what.startswith("http://127.0.0.1:9 does not answer")


def test_missing_credentials_may_still_come(monkeypatch, credentials, object_store):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    store = S3ObjectStore(object_store)

    with pytest.raises(UnavailableError) as caught:
        store.read_bytes(f"s3://{NO_BUCKET}/a")

    assert caught.value.what.startswith("there are no credentials for ")


@pytest.mark.parametrize("uri", ["", "wares/a", "s3://", "s3://wares", "https://wares/a"])
def test_what_is_no_address_is_refused(refusing, uri):
    with pytest.raises(InputError) as caught:
        refusing(200, "x").read_bytes(uri)

    assert caught.value.found == repr(uri)


def test_a_race_is_no_missing_object():
    assert not issubclass(LostRaceError, NotFoundError)
