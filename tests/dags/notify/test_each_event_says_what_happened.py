"""What the callbacks of each task say, from the results that a run left."""

import pytest

from slipway.airflow.notify.callbacks import OBSERVED
from slipway.airflow.notify.links import document_url
from slipway.airflow.site import current_site
from slipway.tasks.contracts.site.site import ObjectStoreSite
from tests.dags.results_to_approve import passed

AIRFLOW = "https://airflow.example/team"
REPORT = "s3://slipway/team-a/releases/demo/evidence/report.html"


@pytest.fixture(autouse=True)
def address(monkeypatch):
    """Airflow's own, as a person opens it."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", AIRFLOW)


@pytest.fixture
def noticed(runs):
    """What is said of an event, with these results of tasks by name."""

    def read(event, task, **results):
        for name, result in results.items():
            runs.xcoms[name.replace("_", "-"), "return_value"] = result.model_dump(mode="json")
        return OBSERVED[event](runs.context(runs.operator(task)), event, "demo")

    return read


def test_a_person_who_is_asked_gets_the_gates_lines_and_the_page_with_the_answer(runs, noticed):
    runs.planned()
    notice = noticed("waiting-for-approval", "gate", gate=passed(runs))

    assert notice.title == f"demo: {runs.release.id} waits for approval"
    assert notice.lines == ("passed: error_rate is 0, at most 0 (n=64)",)
    run = f"{AIRFLOW}/dags/release__demo/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    assert notice.links["Run"] == run
    assert notice.links["Approve or reject"] == f"{run}/tasks/approval/required_actions"
    assert notice.links["Report"] == f"{run}/plugin/slipway"
    assert notice.measured == {"error_rate": 0.0}


def test_a_report_is_linked_where_the_site_shows_objects_to_people(runs, noticed, monkeypatch):
    store = current_site().object_store.model_copy(update={"console": "https://console.example/{key}"})
    site = current_site().model_copy(update={"object_store": store})
    monkeypatch.setattr("slipway.airflow.notify.links.current_site", lambda: site)
    runs.planned()

    url = noticed("promoted", "gate", gate=passed(runs)).report_url
    assert (url.startswith("https://console.example/"), url.endswith("/report.html")) == (True, True)


def test_a_rollback_says_why_and_what_is_live(runs, noticed):
    data = {"release": "demo-0", "was": "demo-1", "reason": "it <b>lies</b>"}
    notice = noticed("rolled-back", "revert", revert=runs.result("revert", data=data))

    assert notice.title == "demo: rolled back, demo-0 is live again"
    assert notice.lines == ("revert is done", "reason: it <b>lies</b>")


def test_deploying_again_what_was_live_is_no_rollback(runs, noticed):
    assert (
        noticed("rolled-back", "revert", revert=runs.result("revert", data={"release": "demo-0", "was": None})) is None
    )


def test_a_drill_says_what_it_found_and_links_to_its_report(runs, noticed):
    data = {"verdict": "failed", "report_uri": "s3://slipway/team-a/releases/demo/evidence/drill.json"}
    notice = noticed("drill-failed", "drill", drill=runs.result("drill", summary="3 of 64 requests failed", data=data))

    assert notice.lines == ("3 of 64 requests failed",)
    assert "/slipway/team-a/releases/demo/evidence/drill.json?X-Amz-" in notice.report_url


def test_a_drill_that_could_not_be_held_says_why(runs, noticed):
    runs.xcoms["drill", "why"] = "drill: no node has room"

    assert noticed("drill-failed", "drill").lines == ("drill: no node has room",)


@pytest.mark.parametrize("states", [{}, {"benchmark": "failed", "roll-back": "success"}])
def test_a_run_whose_tasks_left_nothing_is_told_all_the_same(runs, noticed, states):
    runs.states = states
    lines = noticed("refused", "gate").lines

    ended = ("the run was ended before it finished",)
    assert lines == (("benchmark: failed; its log says why", "the candidate was rolled back") if states else ended)


def test_a_roll_back_that_failed_says_at_once_what_stays_and_how_to_remove_it(runs, noticed):
    runs.states = {"benchmark": "failed", "roll-back": "failed"}

    (*_, left) = noticed("refused", "gate").lines

    assert "the lease of demo stay" in left
    assert "`slipway restore demo`" in left


def test_a_site_with_a_console_links_to_its_pages():
    store = ObjectStoreSite(bucket="slipway", console="https://console.example/{bucket}/{key}")

    assert store.page_of("s3://slipway/a b/report.html") == "https://console.example/slipway/a%20b/report.html"


def test_a_link_that_cannot_be_signed_is_left_out(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", '{"conn_type": "aws", "extra": {"endpoint_url": "no address"}}')

    assert document_url(REPORT) == ""


def test_a_link_is_signed_for_what_slipway_stores_alone(caplog):
    elsewhere = (
        "s3://payroll/releases/report.html",
        "s3://slipway/team-b/releases/report.html",
        "",
        "file:///etc/passwd",
    )

    assert [document_url(uri) for uri in elsewhere] == [""] * len(elsewhere)
    assert caplog.text.count("is not among what Slipway stores") == len(elsewhere)
