"""The page of all models in Airflow's UI: what it shows, to whom, and that a stranger's text in it is text."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml
from airflow.api_fastapi.app import create_auth_manager, get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from starlette.testclient import TestClient

from slipway.airflow.page.app import app
from slipway.airflow.page.documents import MAX_BYTES, Documents
from slipway.airflow.step_documents import s3_client, s3_client_of
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from tests.dags.services.api_server import HOSTILE, api_server, shows
from tests.fakes.releases import SPEC, release
from tests.support.browser import CHROMIUM, page
from tests.support.paths import REPOSITORY
from tests.support.strange_texts import texts

LAYOUT = Layout("s3://slipway/team-a")
NOW = datetime.now(UTC)
STRANGE = " ".join(texts("alert(`a stranger`)", "http://stranger.example/x"))


@pytest.fixture
def models(database, bucket, tmp_path, monkeypatch):
    """Two models in Airflow; one is live, and its newest candidate was refused for a hostile reason."""
    specs = tmp_path / "specs"
    specs.mkdir()
    for name in ("demo", "other"):
        (specs / f"{name}.yaml").write_text(yaml.safe_dump(SPEC | {"name": name}))
    monkeypatch.setenv("SLIPWAY_SPECS", str(specs))
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(DagBag(str(REPOSITORY / "dags")), "dags-folder", None)
    live = release()
    uri = LAYOUT.release("demo", live.id)
    channel = Channel(name="demo").promoted(live.id, uri, at=NOW - timedelta(days=2), run="one", keep=2)
    channel = channel.refused("demo-0123456789ab", at=NOW, run="two", reason=f"2 of 3 smoke answers wrong {STRANGE}")
    for where, document in ((LAYOUT.channel("demo"), channel), (uri, live)):
        bucket.put_object(
            Key=where.removeprefix("s3://slipway/"), Body=canonical_json(document.model_dump(mode="json"))
        )
    return live


@pytest.fixture
def address(models, tmp_path):
    with api_server(tmp_path / "api-server.log") as address:
        yield f"{address}/slipway/"


@pytest.fixture
def client(models, monkeypatch):
    """A client of the page's application alone. Only who has a token is somebody."""
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "0123456789abcdef" * 4)
    create_auth_manager().init()
    return TestClient(app)


def test_nobody_sees_the_page_without_a_login(client):
    assert client.get("/").status_code == 401
    client.cookies.set("_token", "made-up")
    assert client.get("/").status_code == 403


def test_a_reader_sees_the_models_whose_dags_are_theirs_to_read(client, monkeypatch):
    ann = SimpleAuthManagerUser(username="ann", role="viewer")
    login = {"Authorization": f"Bearer {get_auth_manager().generate_jwt(ann)}"}

    assert client.get("/", headers=login).text.count('<th scope="row">') == 2
    monkeypatch.setattr(
        get_auth_manager(), "is_authorized_dag", lambda **asked: asked["details"].id == "release__other"
    )
    seen = client.get("/", headers=login).text
    assert (seen.count('<th scope="row">'), "other" in seen, "demo-" in seen) == (1, True, False)


def test_an_object_store_that_is_away_is_said_and_the_models_are_still_listed(client, monkeypatch):
    monkeypatch.setenv(
        "AIRFLOW_CONN_AWS_DEFAULT", '{"conn_type": "aws", "extra": {"endpoint_url": "http://127.0.0.1:9"}}'
    )
    s3_client_of.cache_clear()
    ann = SimpleAuthManagerUser(username="ann", role="viewer")

    seen = client.get("/", headers={"Authorization": f"Bearer {get_auth_manager().generate_jwt(ann)}"})

    s3_client_of.cache_clear()
    assert (seen.status_code, "cannot be read" in seen.text, "/dags/release__other" in seen.text) == (200, True, True)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_it_says_what_is_live_and_why_a_candidate_was_refused(address, models, tmp_path):
    with page(tmp_path / "profile") as shown:
        shown.open(address.removesuffix("slipway/"))  # logs in
        shown.wait_for(shows("Models"))  # the link to the page
        shown.requested.clear()
        shown.open(address)
        shown.wait_for(shows("2 of 3 smoke answers wrong"))

        text = shown.run("document.body.innerText")
        for expected in (models.id, SPEC["engine"]["kind"], "never released", models.plan.source.commit[:8]):
            assert expected in text
        assert (shown.run("document.querySelectorAll('tbody tr').length"), shown.dialogs) == (2, [])
        assert [url for url in shown.requested if not url.startswith(address)] == []
        assert shown.run(HOSTILE.replace('"style"', '"xstyle"')) == []


def test_a_document_is_fetched_again_only_when_it_has_changed(bucket):
    documents, uri, client = Documents(), "s3://slipway/one", s3_client("aws_default")
    read = []
    client.meta.events.register(
        "after-call.s3.GetObject", lambda http_response, **_: read.append(http_response.status_code)
    )

    assert documents.read([uri], client) == {}
    bucket.put_object(Key="one", Body=b"a")
    assert documents.read([uri], client) == {uri: b"a"}
    assert documents.read([uri], client) == {uri: b"a"}
    bucket.put_object(Key="one", Body=b"b")
    assert documents.read([uri], client) == {uri: b"b"}
    assert read == [404, 200, 304, 200]
    bucket.put_object(Key="one", Body=b"x" * (MAX_BYTES + 1))
    assert documents.read([uri], client) == {}
