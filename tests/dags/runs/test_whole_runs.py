"""Whole runs by Airflow itself, each step's pod scripted: which steps run, which are skipped, how the run ends."""

import contextlib
import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetEvent
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from slipway.airflow.notify.webhook import CONTENT_TYPE
from slipway.airflow.site import current_site
from slipway.airflow.step_operator import StepOperator
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.spec.gate import Expectation
from tests.dags.places import SITE
from tests.fakes.kube.kubernetes_pods import PodEnd
from tests.fakes.releases import SPEC
from tests.fakes.servers.inboxes import Mailbox, WebhookInbox
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

AHEAD = (
    *("plan", "download", "quantize", "build", "assemble", "publish", "check-network", "roll-out", "smoke-test"),
    "benchmark",
)


pytestmark = pytest.mark.filterwarnings("ignore:notifier no.such.Notifier cannot be imported")
"""Airflow reads the files again while it runs a DAG."""
SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
BROKEN = {"notifier": "no.such.Notifier"}
TOLD = {
    "send": [
        {"notifier": "slipway.airflow.notify.webhook.WebhookNotifier", "arguments": {"endpoint": "events"}},
        BROKEN,
    ],
    "from_specs": {SMTP: ["to"]},
}
TEAM = {"notifier": SMTP, "arguments": {"to": "team@example.org"}, "events": ["refused", "promoted"]}


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A site that tells a webhook, and lets a spec send mail; what arrived."""
    site = load_yaml(SITE.read_text()) | {"notifications": TOLD}
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "site.yaml").write_text(yaml.safe_dump(site))
    monkeypatch.setenv("SLIPWAY_SITE", str(tmp_path / "site" / "site.yaml"))
    current_site.cache_clear()
    with Mailbox() as mailbox, WebhookInbox() as webhook:
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", mailbox.connection)
        monkeypatch.setenv("AIRFLOW_CONN_SLIPWAY_WEBHOOK", webhook.connection)
        yield SimpleNamespace(mailbox=mailbox, webhook=webhook)
    current_site.cache_clear()


@pytest.fixture
def run(request, told, runs, database, tmp_path, monkeypatch, caplog):
    """Run the DAG of the demo spec to its end; the run's state and the state of each task."""
    deferrable = getattr(request, "param", False)
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump({**SPEC, "notifications": [TEAM]}))
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))

    def to_the_end(scripted=None, *, action="release", stored=(), conf=None):
        runs.planned(action=action, stored=stored)
        plan = runs.xcoms["plan", "return_value"]["data"]
        with pytest.warns(UserWarning, match="no.such.Notifier cannot be imported"):
            dag = DagBag(str(REPOSITORY / "dags")).dags["release__demo"]
        for task in dag.tasks:
            task.retries = 0
            if isinstance(task, StepOperator):
                task.deferrable = deferrable  # as airflow.deferrable of the site says

        def script(pod):
            step = pod["metadata"]["labels"]["slipway.dev/step"]
            data = plan if step == "plan" else {"verdict": "passed"}
            result = runs.result(step, run=pod["metadata"]["labels"]["slipway.dev/run"], data=data)
            changes, end = (scripted or {}).get(step, ({}, PodEnd()))
            result = result.model_copy(update={"started_at": datetime.now(UTC), **changes})
            runs.write(result)
            return end

        runs.cluster.script = script
        caplog.set_level("INFO", "airflow.sdk.definitions.dag")
        with contextlib.suppress(SystemExit):
            finished = dag.test(run_conf=conf)
        tis = finished.get_task_instances()
        # a task that never waits in the triggerer would make both modes the same
        assert ("running trigger in line" in caplog.text) == deferrable
        to_the_end.events = [
            (event.asset.name, event.asset.uri, event.source_task_id, event.extra) for event in events_of(finished)
        ]
        to_the_end.started = {ti.task_id for ti in tis if ti.pid is not None}  # had a process
        return finished.state, {ti.task_id: str(ti.state) for ti in tis}

    return to_the_end


def events_of(run):
    """The events of assets that a run's tasks emitted."""
    query = select(AssetEvent).where(AssetEvent.source_run_id == run.run_id).options(joinedload(AssetEvent.asset))
    with create_session() as session:
        return session.scalars(query).all()


in_both_modes = pytest.mark.parametrize("run", [False, True], ids=["normal", "deferrable"], indirect=True)
"""How a deferred task ends is in tests/dags/operator."""


def refusal(release_id):
    """The data of a gate that refuses."""
    judgements = [
        judgement(Verdict.PASSED, "error_rate is 0"),
        judgement(Verdict.FAILED, "smoke_accuracy is 0.5, at least 1 (n=2)"),
    ]
    report = GateReport(release_id=release_id, live=None, verdict=Verdict.FAILED, judgements=judgements)
    return {
        "verdict": "failed",
        "evidence": "s3://slipway/team-a/releases/demo/evidence",
        "report": report.model_dump(mode="json"),
    }


def judgement(verdict, why):
    """One line of a gate."""
    expectation = Expectation(metric="error_rate", at_most=0.0)
    return Judgement(
        expectation=expectation, what="error_rate", verdict=verdict, observed=0.0, limit=0.0, unit="", count=2, why=why
    )


def steps_of_pods(runs):
    return [pod["metadata"]["labels"]["slipway.dev/step"] for pod in runs.cluster.created]


@in_both_modes
def test_a_release_that_passes_is_promoted_and_nothing_is_rolled_back(runs, run, told, caplog):
    state, tasks = run(stored=("download", "quantize"))

    assert state == "success"
    assert tasks == {
        **dict.fromkeys((*AHEAD, "gate", "promote", "released"), "success"),
        "approval": "skipped",
        "roll-back": "skipped",
    }
    assert steps_of_pods(runs) == [
        *(step for step in (*AHEAD, "gate") if step not in ("download", "quantize", "check-network")),
        "promote",
    ]
    assert len({pod["metadata"]["labels"]["slipway.dev/run"] for pod in runs.cluster.created}) == 1
    (event,) = run.events
    assert event[:3] == ("slipway/demo", "x-slipway://models/demo", "promote")
    assert event[3]["release"] == runs.result("promote").release
    assert set(tasks) - run.started == {"approval"}  # the run needs none, which plan already knows
    (mail,) = told.mailbox.mails
    assert (mail["Subject"], mail["To"]) == (f"demo: {runs.release.id} is live", "team@example.org")
    assert "promote is done" in mail.get_body().get_content()
    ((path, headers, body),) = told.webhook.posts
    assert (path, headers["Content-Type"]) == ("/events", CONTENT_TYPE)
    assert headers["Authorization"].startswith("Basic ")
    assert json.loads(body)["type"] == "dev.slipway.release.promoted"
    assert "no.such.Notifier cannot be imported" in caplog.text  # and nothing came of it


@in_both_modes
def test_a_refused_release_is_rolled_back_and_the_run_ends_failed(runs, run, told, capsys):
    state, tasks = run({"gate": ({"data": refusal(runs.release.id)}, PodEnd())})

    assert state == "failed"
    assert tasks == {
        **dict.fromkeys(AHEAD, "success"),
        "gate": "failed",
        "approval": "skipped",
        "promote": "upstream_failed",
        "roll-back": "success",
        "released": "failed",
    }
    assert run.events == []
    assert "Traceback" not in capsys.readouterr().out
    ((_, _, body),) = told.webhook.posts
    event = json.loads(body)
    assert event["type"] == "dev.slipway.release.refused"
    assert event["data"]["why"] == [
        "failed: smoke_accuracy is 0.5, at least 1 (n=2)",
        "passed: error_rate is 0",
        "the candidate was rolled back",
    ]
    assert event["data"]["report_url"].startswith("http://127.0.0.1:")
    assert event["data"]["report_url"].partition("?")[0].endswith("/slipway/team-a/releases/demo/evidence/report.html")
    (mail,) = told.mailbox.mails
    assert mail["Subject"] == f"demo: {runs.release.id} was refused"
    assert mail.get_body().get_content().index("smoke_accuracy is 0.5") < mail.get_body().get_content().index("passed:")
    assert steps_of_pods(runs)[-2:] == ["gate", "roll-back"]


def test_a_build_that_fails_leaves_nothing_to_roll_back(runs, run, told):
    failed = runs.failed("build", 65, "wrong")
    state, tasks = run({"build": ({"outcome": "failed", "error": failed.error}, PodEnd(exit_code=65))})

    assert state == "failed"
    assert tasks["build"] == "failed"
    assert (tasks["roll-back"], tasks["released"]) == ("skipped", "failed")
    assert steps_of_pods(runs) == ["plan", "download", "quantize", "build"]
    assert [json.loads(body)["data"]["why"] for _, _, body in told.webhook.posts] == [["build: wrong"]]


def test_a_benchmark_whose_pod_vanishes_is_rolled_back(runs, run):
    state, tasks = run({"benchmark": ({}, PodEnd(gone=True))})

    assert state == "failed"
    assert (tasks["smoke-test"], tasks["benchmark"], tasks["gate"]) == ("success", "failed", "upstream_failed")
    assert (tasks["promote"], tasks["roll-back"], tasks["released"]) == ("upstream_failed", "success", "failed")
    assert steps_of_pods(runs)[-2:] == ["benchmark", "roll-back"]


@pytest.mark.parametrize(("action", "conf"), [("nothing", {}), ("release", {"plan_only": True})])
def test_a_run_with_nothing_to_do_succeeds_and_starts_no_process_for_its_steps(runs, run, action, conf):
    state, tasks = run(action=action, conf=conf)

    assert state == "success"
    assert {task for task, state in tasks.items() if state == "skipped"} == set(tasks) - {"plan"}
    assert steps_of_pods(runs) == ["plan"]
    assert run.started == {"plan", "roll-back", "released"}
