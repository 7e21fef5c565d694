"""Airflow's pages of models show each person what their rights allow, and run nothing that a stranger wrote."""

import re
from datetime import UTC, datetime

import pytest
import yaml
from airflow.models import DagModel, DagRun, TaskInstance
from airflow.models.hitl import HITLDetail
from airflow.utils.session import create_session
from sqlalchemy import delete, select, update

from slipway.airflow.page.actions import ACTIONS, FORM_BYTES
from slipway.tasks.contracts.stored.artifact import Layout
from tests.dags.services.api_server import HOSTILE, shows
from tests.dags.services.people import ADMIN, HIDDEN, OPERATOR, VIEWER
from tests.dags.services.stored_runs import store_dags, stored_run
from tests.fakes.documents.page_documents import stored
from tests.fakes.documents.refused_release import (
    ANSWERS,
    CANDIDATE,
    LIVE,
    RIGHT,
    RUN,
    canary,
    documents,
    gate,
    promoted,
    refused,
)
from tests.fakes.releases import SPEC
from tests.support.browser import AXE, CHROMIUM, page
from tests.support.paths import REPOSITORY
from tests.support.strange_texts import texts
from tests.support.waiting import until

LAYOUT = Layout("s3://slipway/team-a")
NAMES = ("demo", "fresh", "torn", HIDDEN)
ALL, MODEL, TAB = "/slipway/", "/slipway/models/demo", f"/slipway/runs/release__demo/{RUN}"
STRANGE = " ".join(texts("alert(`a stranger`)", "http://stranger.example/x"))
PICTURES = REPOSITORY / ".slipway" / "pictures"
BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
WIDTHS = (375, 800, 1920)


@pytest.fixture(scope="module")
def dags(database, tmp_path_factory):
    """Four models in Airflow, and a run of one of them that waits for approval; the ids of its tasks."""
    folder = tmp_path_factory.mktemp("specs")
    for name in NAMES:
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(SPEC | {"name": name}))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SLIPWAY_SPECS", str(folder))
        bag = store_dags()
    with create_session() as session:
        session.execute(update(DagModel).values(is_paused=False))
    with (
        stored_run(bag, "release__demo", RUN, {"plan": "success", "approval": "awaiting_input"}) as tasks,
        stored_run(bag, f"release__{HIDDEN}", RUN, {}),
    ):
        yield tasks


@pytest.fixture(scope="module")
def bucket(s3):
    """The site's bucket. It is not emptied between tests: a server reads documents again after it has shown a page."""
    made = s3.Bucket("slipway")
    made.create()
    yield made
    made.objects.all().delete()
    made.delete()


@pytest.fixture
def models(dags, bucket):
    """One model is live, and its newest candidate was refused, by a hostile reason; one has a torn channel."""
    now = datetime.now(UTC)
    found = documents(LAYOUT, now, channel=refused(LAYOUT, now, f"refused {STRANGE}"))
    documents_of_all = {**found, LAYOUT.channel("torn"): b"{"}
    written = {uri.removeprefix("s3://slipway/"): stored(document) for uri, document in documents_of_all.items()}
    for key, body in written.items():
        bucket.put_object(Key=key, Body=body)
    for other in bucket.objects.all():  # of another test
        if other.key not in written:
            other.delete()


@pytest.mark.parametrize("path", [ALL, MODEL, TAB])
def test_nobody_sees_a_page_without_a_login(airflow, dags, path):
    assert airflow.get(path).status == 401
    assert airflow.get(path, token="made-up").status == 403


def own_rows(text):
    """The rows of this file's models: other tests store theirs in the same database."""
    rows = text.split('<th scope="row">')[1:]
    return [row for row in rows if re.match(r"(?:<a [^>]*>)?([^<]*)<", row)[1] in NAMES]


def test_each_person_sees_the_models_and_the_actions_that_airflow_allows_them(airflow, models):
    rows = {user: own_rows(airflow.get(ALL, user).text) for user in (VIEWER, OPERATOR, ADMIN)}
    seen = {user: "".join(own) for user, own in rows.items()}

    assert {user: len(own) for user, own in rows.items()} == {VIEWER: 3, OPERATOR: 3, ADMIN: 4}
    assert {user: HIDDEN in text for user, text in seen.items()} == {VIEWER: False, OPERATOR: False, ADMIN: True}
    assert {user: text.count(">Roll back</a>") for user, text in seen.items()} == {VIEWER: 0, OPERATOR: 3, ADMIN: 4}
    for answer in ("Approve", "Reject"):
        assert {user: text.count(f">{answer}</a>") for user, text in seen.items()} == {VIEWER: 0, OPERATOR: 1, ADMIN: 1}


@pytest.mark.parametrize("kind", ["models/{}", "runs/release__{}/" + RUN])
def test_a_model_that_a_person_may_not_see_is_as_one_that_does_not_exist(airflow, models, kind):
    hidden, none = (airflow.get(f"/slipway/{kind.format(name)}", OPERATOR) for name in (HIDDEN, "no-such-model"))

    assert (hidden.status, hidden.text) == (none.status, none.text) == (404, none.text)
    assert airflow.get(f"/slipway/{kind.format(HIDDEN)}", ADMIN).status == 200


def test_a_viewer_reads_a_model_and_a_run_and_has_no_buttons(airflow, models):
    model, run = airflow.get(MODEL, VIEWER).text, airflow.get(TAB, VIEWER).text

    assert f"{CANDIDATE.id} was refused: 2 of 3 smoke answers wrong" in model
    assert f"{CANDIDATE.id}, refused: 2 of 3 smoke answers wrong" in run
    assert 'class="actions"' not in model + run
    assert 'class="actions"' in airflow.get(MODEL, OPERATOR).text


@pytest.fixture
def asked(dags, models):
    """A question of the run that waits, without an answer; at the end, the runs that forms started are gone."""
    question = {"options": ["Approve", "Reject"], "subject": "Promote?", "params": {}}
    with create_session() as session:
        session.add(HITLDetail(ti_id=dags["approval"], **question))
    yield
    with create_session() as session:
        session.execute(delete(HITLDetail).where(HITLDetail.ti_id == dags["approval"]))
        session.execute(delete(DagRun).where(DagRun.run_id.startswith("page-")))
        session.get(TaskInstance, dags["approval"]).state = "awaiting_input"


def order(form):
    """What a form carries."""
    return re.search(r'name="order" value="([^"]+)"', form.text)[1]


WHY = "it <b>lies</b>"


@pytest.mark.parametrize("key", ACTIONS)
def test_only_who_may_take_an_action_can_confirm_it_and_only_once(airflow, asked, key):
    path, other = f"{MODEL}/{key}", f"{MODEL}/{'release' if key != 'release' else 'roll-back'}"
    confirmed = {"order": order(airflow.get(path, OPERATOR)), "reason": WHY}
    of_another = {"order": order(airflow.get(other, OPERATOR)), "reason": WHY}

    assert [airflow.get(path, form=form).status for form in (None, confirmed)] == [401, 401]
    assert [airflow.get(path, VIEWER, form=form).status for form in (None, confirmed)] == [403, 403]
    assert [airflow.get(path, OPERATOR, form=form).status for form in ({"reason": WHY}, of_another)] == [403, 403]
    if ACTIONS[key].needs_reason:
        assert airflow.get(path, OPERATOR, form=confirmed | {"reason": "\n"}).status == 400
    assert "<h1>demo</h1>" in airflow.get(path, OPERATOR, form=confirmed).text  # the page of the model
    again = airflow.get(path, OPERATOR, form=confirmed)
    assert (again.status, "Airflow answered 409" in again.text) == (409, True)


@pytest.mark.parametrize(("key", "given"), [("approve", {}), ("reject", {"reason": WHY})])
def test_an_answer_is_airflows_own_with_who_gave_it_and_why(airflow, asked, dags, key, given):
    airflow.get(f"{MODEL}/{key}", OPERATOR, form={"order": order(airflow.get(f"{MODEL}/{key}", OPERATOR)), **given})

    with create_session() as session:
        answer = session.get(HITLDetail, dags["approval"])
        assert (answer.chosen_options, answer.params_input) == ([ACTIONS[key].text], given)
        assert answer.responded_by["name"] == OPERATOR


@pytest.mark.parametrize(
    ("key", "dag_id", "conf"), [("release", "release__demo", {}), ("roll-back", "rollback__demo", {"reason": WHY})]
)
def test_a_form_starts_a_run_of_airflow(airflow, asked, key, dag_id, conf):
    form = airflow.get(f"{MODEL}/{key}", OPERATOR)
    airflow.get(f"{MODEL}/{key}", OPERATOR, form={"order": order(form), **conf})

    with create_session() as session:
        (run,) = session.scalars(select(DagRun).where(DagRun.run_id.startswith("page-")))
        assert (run.dag_id, run.conf, run.triggering_user_name) == (dag_id, conf, OPERATOR)


def test_a_run_that_waits_for_the_one_that_waits_for_a_person_does_not_hide_it(airflow, asked):
    airflow.get(f"{MODEL}/release", OPERATOR, form={"order": order(airflow.get(f"{MODEL}/release", OPERATOR))})

    assert ">Approve<" in airflow.get(MODEL, OPERATOR).text


def test_a_run_of_a_paused_dag_is_not_begun(airflow, asked):
    with create_session() as session:
        session.get(DagModel, "rollback__demo").is_paused = True
    try:
        form = airflow.get(f"{MODEL}/roll-back", OPERATOR)
    finally:
        with create_session() as session:
            session.get(DagModel, "rollback__demo").is_paused = False

    assert (form.status, "rollback__demo is paused" in form.text) == (409, True)


def test_a_form_is_bounded(airflow, dags):
    assert airflow.get(f"{MODEL}/release", OPERATOR, form={"order": "x" * FORM_BYTES}).status == 413


def test_a_model_whose_channel_cannot_be_read_says_so_in_its_row_alone(airflow, models):
    text = airflow.get(ALL, VIEWER).text

    assert text.count("its channel cannot be shown") == 1
    assert (LIVE.id in text, "never released" in text) == (True, True)


@pytest.mark.parametrize("path", [ALL, MODEL, TAB])
def test_a_page_may_run_nothing_and_is_kept_nowhere(airflow, models, path):
    headers = airflow.get(path, VIEWER).headers

    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert (policy["default-src"], "unsafe" in str(policy)) == ("'none'", False)
    assert headers["cache-control"] == "no-store"


def test_a_server_without_a_site_file_says_what_is_missing(started):
    said, unknown = started.without_site
    missing = str(started.site)

    assert (said.status, missing in said.text, said.headers["cache-control"]) == (500, True, "no-store")
    assert (unknown.status, missing in unknown.text) == (401, False)


@BROWSER
def test_no_page_runs_or_fetches_a_strangers_text_and_all_fit_every_screen(airflow, models, tmp_path):
    with page(tmp_path / "profile") as shown:
        airflow.log_in(shown, OPERATOR)
        for name, path, said in (
            ("models", ALL, "never released"),
            ("model", MODEL, "2 of 3 smoke answers wrong"),
            ("run", TAB, "refused: 2 of 3"),
            ("reject", f"{MODEL}/reject", "refused: 2 of 3"),
        ):
            shown.requested.clear()
            shown.open(airflow.address + path)
            shown.wait_for(shows(said))
            assert [url for url in shown.requested if url != "about:blank"] == [airflow.address + path]
            assert (shown.dialogs, shown.run(HOSTILE)) == ([], [])
            for width in WIDTHS:
                for dark in (False, True):
                    shown.look(width, dark=dark)
                    assert shown.run("document.documentElement.scrollWidth") <= width, (name, width)
                    shown.picture(PICTURES / f"{name}-{width}-{'dark' if dark else 'light'}.png")


@BROWSER
def test_a_canary_and_a_promotion_fit_every_screen(airflow, models, bucket, tmp_path):
    now = datetime.now(UTC)
    folder = LAYOUT.evidence("demo", CANDIDATE.id, RUN)
    live = promoted(LAYOUT, now)
    states = {
        "canary": ({LAYOUT.channel("demo"): live, f"{folder}/canary.json": canary(now)}, "answers 25 %"),
        "promoted": (
            {
                LAYOUT.channel("demo"): live.promoted(
                    CANDIDATE.id, LAYOUT.release("demo", CANDIDATE.id), at=now, run=RUN, keep=2
                ),
                f"{folder}/gate.json": gate(RIGHT),
                f"{folder}/answers.json": ANSWERS[:1],
            },
            "is live: all 1 expectations hold",
        ),
    }
    with page(tmp_path / "profile") as shown:
        airflow.log_in(shown, OPERATOR)
        for name, (documents, said) in states.items():
            for uri, document in documents.items():
                bucket.put_object(Key=uri.removeprefix("s3://slipway/"), Body=stored(document))
            until(lambda said=said: said in airflow.get(MODEL, OPERATOR).text)
            shown.open(airflow.address + MODEL)
            shown.wait_for(shows(said))
            for width in WIDTHS:
                for dark in (False, True):
                    shown.look(width, dark=dark)
                    assert shown.run("document.documentElement.scrollWidth") <= width, (name, width)
                    shown.picture(PICTURES / f"{name}-{width}-{'dark' if dark else 'light'}.png")
            assert not AXE.is_file() or shown.axe() == []


@BROWSER
@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm install --prefix .slipway axe-core")
def test_a_keyboard_and_a_screen_reader_can_use_every_page(airflow, models, tmp_path):
    with page(tmp_path / "profile") as shown:
        airflow.log_in(shown, OPERATOR)
        for path, said in (
            (ALL, "never released"),
            (MODEL, "smoke answers"),
            (TAB, "smoke answers"),
            (f"{MODEL}/reject", "smoke answers"),
        ):
            for width, dark in ((375, True), (1920, False)):
                shown.look(width, dark=dark)
                shown.open(airflow.address + path)
                shown.wait_for(shows(said))
                assert shown.axe() == []


@BROWSER
def test_a_person_rolls_back_in_a_browser_that_sends_its_cookie(airflow, asked, tmp_path):
    with page(tmp_path / "profile") as shown:
        airflow.log_in(shown, OPERATOR)
        shown.open(airflow.address + MODEL)
        shown.wait_for("document.querySelector('a.roll-back') !== null")
        shown.run("document.querySelector('a.roll-back').click()")
        shown.wait_for("document.querySelector('#reason') !== null")
        shown.run("document.querySelector('#reason').value = 'it lies'")
        shown.run("document.querySelector('button').click()")
        shown.wait_for("!document.querySelector('form') && document.querySelector('h1') !== null")
    with create_session() as session:
        assert session.scalar(select(DagRun.conf).where(DagRun.run_id.startswith("page-"))) == {"reason": "it lies"}


@BROWSER
def test_airflow_shows_the_page_in_its_menu_and_the_report_as_a_tab_of_a_run(airflow, models, tmp_path):
    with page(tmp_path / "profile") as shown:
        airflow.log_in(shown, VIEWER)
        shown.open(f"{airflow.address}/dags/release__demo/runs/{RUN}/plugin/slipway")
        shown.wait_for(
            "document.querySelector('iframe')?.contentDocument?.body?.innerText.includes('smoke answers wrong')"
        )
        shown.open(airflow.address)
        shown.wait_for(shows("Models"))
