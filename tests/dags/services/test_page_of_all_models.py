"""The page of all models in Airflow: what it says, to whom, and that a stranger's text in it is text."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from tests.dags.services.api_server import HOSTILE, shows
from tests.dags.services.people import ADMIN, HIDDEN, OPERATOR, VIEWER
from tests.fakes.releases import SPEC, release
from tests.support.browser import CHROMIUM, page
from tests.support.paths import REPOSITORY
from tests.support.strange_texts import texts

LAYOUT = Layout("s3://slipway/team-a")
PATH = "/slipway/"
NOW = datetime.now(UTC)
STRANGE = " ".join(texts("alert(`a stranger`)", "http://stranger.example/x"))


@pytest.fixture
def put(bucket):
    """Writes a document to the bucket."""

    def write(uri, document):
        body = document if isinstance(document, bytes) else canonical_json(document.model_dump(mode="json"))
        bucket.put_object(Key=uri.removeprefix("s3://slipway/"), Body=body)

    return write


@pytest.fixture
def live(database, put, tmp_path, monkeypatch):
    """The live release of one of four models; its newest candidate was refused for a hostile reason."""
    for name in ("demo", "fresh", "torn", HIDDEN):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(SPEC | {"name": name}))
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(DagBag(str(REPOSITORY / "dags")), "dags-folder", None)
    live = release()
    uri = LAYOUT.release("demo", live.id)
    channel = Channel(name="demo").promoted(live.id, uri, at=NOW - timedelta(days=2), run="one", keep=2)
    channel = channel.refused("demo-0123456789ab", at=NOW, run="two", reason=f"2 of 3 smoke answers wrong {STRANGE}")
    put(LAYOUT.channel("demo"), channel)
    put(uri, live)
    put(LAYOUT.channel("torn"), b"{")
    return live


def test_nobody_sees_a_page_without_a_login(airflow):
    assert airflow.get(PATH).status == 401
    assert airflow.get(PATH, token="made-up").status == 403


def test_each_person_sees_the_models_and_the_actions_that_airflow_allows_them(airflow, live):
    seen = {user: airflow.get(PATH, user).text for user in (VIEWER, OPERATOR, ADMIN)}

    assert {user: text.count('<th scope="row">') for user, text in seen.items()} == {VIEWER: 3, OPERATOR: 3, ADMIN: 4}
    assert {user: HIDDEN in text for user, text in seen.items()} == {VIEWER: False, OPERATOR: False, ADMIN: True}
    assert {user: text.count(">Roll back</a>") for user, text in seen.items()} == {VIEWER: 0, OPERATOR: 3, ADMIN: 4}


def test_a_model_whose_channel_cannot_be_read_says_so_in_its_row_alone(airflow, live):
    text = airflow.get(PATH, VIEWER).text

    assert text.count("its channel cannot be shown") == 1
    assert (live.id in text, "never released" in text) == (True, True)


def test_the_page_may_run_nothing_and_is_kept_nowhere(airflow, live):
    headers = airflow.get(PATH, VIEWER).headers

    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert (policy["default-src"], "unsafe" in str(policy)) == ("'none'", False)
    assert headers["cache-control"] == "no-store"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_it_says_what_is_live_and_why_a_candidate_was_refused(airflow, live, tmp_path):
    with page(tmp_path / "profile") as shown:
        airflow.log_in(shown, VIEWER)
        shown.open(airflow.address)
        shown.wait_for(shows("Models"))  # the link to the page
        shown.requested.clear()
        shown.open(airflow.address + PATH)
        shown.wait_for(shows("2 of 3 smoke answers wrong"))

        text = shown.run("document.body.innerText")
        for expected in (live.id, SPEC["engine"]["kind"], "never released", live.plan.source.commit[:8]):
            assert expected in text
        assert [url for url in shown.requested if not url.startswith(airflow.address + PATH)] == []
        assert (shown.run("document.querySelectorAll('tbody tr').length"), shown.dialogs) == (3, [])
        assert shown.run(HOSTILE.replace('"style"', '"xstyle"')) == []
