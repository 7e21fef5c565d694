"""`slipway release` follows a run to its end, and its exit code tells CI how that was."""

import io
import json
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler

import pytest
import yaml

from slipway.cli import step_process
from slipway.cli.airflow import approvals
from slipway.cli.json_documents import ReleaseDocument
from slipway.cli.runs import revision_check
from slipway.cli.runs.follow import ORDER
from tests.fakes.servers.airflow_server import Frame, Script
from tests.fakes.servers.loopback_server import LoopbackServer
from tests.fakes.workspace import SITE
from tests.support.waiting import until
from tests.unit.cli.runs import DAG, failed, nothing_to_do, promoted, refused, result


def test_a_promoted_release_exits_with_0_and_names_what_is_live(airflow, slipway):
    airflow.dags[DAG] = promoted()

    code, printed = slipway("release", "demo", "--revision", "v1")

    assert code == 0
    assert "promoted: demo-555555555555 is live" in printed


def test_the_end_of_a_release_is_one_document(airflow, slipway):
    airflow.dags[DAG] = refused()

    code, printed = slipway("release", "demo", "--json")

    document = ReleaseDocument.model_validate_json(printed.out)
    assert code == document.exit_code == 1
    assert (document.run.state, document.gate.verdict) == ("failed", "failed")
    assert ("gate", "failed") in {(step.name, step.state) for step in document.steps}
    assert document.outcome in slipway("release", "demo")[1]


def test_a_release_that_is_not_followed_has_no_outcome(airflow, slipway):
    airflow.dags[DAG] = promoted()

    code, printed = slipway("release", "demo", "--json", "--no-wait")

    document = ReleaseDocument.model_validate_json(printed.out)
    assert (code, document.outcome, document.exit_code) == (0, None, None)
    assert (DAG, document.run.id) in airflow.runs


def test_every_state_change_is_one_line_where_there_is_no_terminal(airflow, slipway):
    airflow.dags[DAG] = promoted()

    _, printed = slipway("release", "demo")

    quantize = [line.split("quantize")[1].split()[0] for line in printed.splitlines() if "  quantize" in line]
    assert quantize == ["running", "stored"]
    assert "4.2 s  roll-out went well" in printed
    assert "released" not in printed


def test_steps_that_come_to_nothing_share_a_line(airflow, slipway):
    airflow.dags[DAG] = nothing_to_do()

    _, printed = slipway("release", "demo")

    lines = [line for line in printed.splitlines() if "skipped" in line]
    assert [line[10:] for line in lines] == [f"skipped: {', '.join(ORDER[1:])}"]


def test_only_what_was_requested_becomes_a_parameter(airflow, slipway):
    airflow.dags[DAG] = nothing_to_do()

    slipway("release", "demo", "--revision", "v2", "--run-id", "one")
    slipway("release", "demo", "--force", "--approval", "human", "--run-id", "two")

    assert airflow.runs[DAG, "one"].conf == {"revision": "v2"}
    assert airflow.runs[DAG, "two"].conf == {"force": True, "approval": "human"}


def test_nothing_to_do_is_a_success(airflow, slipway):
    airflow.dags[DAG] = nothing_to_do()

    code, printed = slipway("release", "demo")

    assert code == 0
    assert "nothing to do: demo-555555555555 is live" in printed


def test_a_refused_release_exits_with_1_and_shows_what_the_gate_saw(airflow, slipway):
    airflow.dags[DAG] = refused()

    code, printed = slipway("release", "demo")

    assert code == 1
    assert "refused: demo-555555555555 failed its gate; it was rolled back, demo-older stays live" in printed
    assert "≥ 0.95" in printed
    assert "s3://b/e/report.html" in printed


def test_a_wrong_input_exits_with_65_and_says_what_plan_said(airflow, slipway):
    airflow.dags[DAG] = failed("plan", "AirflowFailException", "plan: slipway/demo-llama has no revision v9")

    code, printed = slipway("release", "demo", "--revision", "v9")

    assert code == 65
    assert "failed: plan: slipway/demo-llama has no revision v9" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("step", "kind"), [("plan", "AirflowException"), ("build", "AirflowFailException"), ("build", "AirflowException")]
)
def test_any_other_failure_exits_with_1_and_ends_with_the_log(airflow, slipway, step, kind):
    airflow.dags[DAG] = failed(step, kind, "the disk is full")

    code, printed = slipway("release", "demo")

    assert code == 1
    assert f"failed: {step}: the disk is full" in printed
    assert "| resolving slipway/demo-llama at v9" in printed


@pytest.mark.parametrize("step", ["plan", "build"])
def test_what_to_do_about_a_failed_step_has_a_line_of_its_own(airflow, slipway, step):
    message = f"{step}: engine.gpu L4: found no such GPU at the site. Choose another GPU."
    airflow.dags[DAG] = failed(step, "AirflowFailException", message, remedy="Choose another GPU.")

    _, printed = slipway("release", "demo")

    assert printed.splitlines()[-2:] == [
        f"failed: {step}: engine.gpu L4: found no such GPU at the site.",
        "  → Choose another GPU.",
    ]
    assert printed.count("Choose another GPU.") == 1


@pytest.mark.parametrize(("code", "step", "exits"), [(65, "plan", 65), (65, "build", 1), (75, "plan", 1)])
def test_the_error_of_a_failed_step_is_the_one_in_its_result(airflow, slipway, code, step, exits):
    airflow.dags[DAG] = failed(step, "AirflowException", "the log says less", remedy="Read the log.")
    failure = {
        "kind": "InputError",
        "exit_code": code,
        "message": "no such GPU. Choose another.",
        "remedy": "Choose another.",
    }
    airflow.dags[DAG].failed_results[step] = result(step, outcome="failed") | {"error": failure}

    exit_code, printed = slipway("release", "demo")

    assert exit_code == exits
    assert printed.splitlines()[-2:] == [f"failed: {step}: no such GPU.", "  → Choose another."]


def test_a_run_that_takes_too_long_exits_with_124_and_goes_on(airflow, slipway):
    airflow.dags[DAG] = Script([Frame("running", {"plan": "running"})])

    code, printed = slipway("release", "demo", "--timeout", "1", "--run-id", "ci-7")

    assert code == 124
    assert f"the run continues at {airflow.address}/dags/{DAG}/runs/ci-7" in printed


def test_no_wait_leaves_once_the_run_has_begun(airflow, slipway):
    airflow.dags[DAG] = Script([Frame("running", {"plan": "running"})])

    code, _ = slipway("release", "demo", "--no-wait")

    assert code == 0
    assert len(airflow.runs) == 1


def test_a_retry_with_the_same_run_id_follows_the_run_that_exists(airflow, slipway):
    airflow.dags[DAG] = promoted()
    slipway("release", "demo", "--revision", "v1", "--no-wait", "--run-id", "ci-7")

    code, printed = slipway("release", "demo", "--revision", "v1", "--run-id", "ci-7")

    assert code == 0
    assert "following existing run ci-7" in printed
    assert len(airflow.runs) == 1


def test_a_run_id_of_another_revision_is_refused(airflow, slipway):
    airflow.dags[DAG] = promoted()
    slipway("release", "demo", "--revision", "v1", "--no-wait", "--run-id", "ci-7")

    code, printed = slipway("release", "demo", "--revision", "v2", "--run-id", "ci-7")

    assert code == 65
    assert "found revision v1, expected revision v2" in printed


@pytest.mark.parametrize("state", ["awaiting_input", "deferred"])
def test_a_release_that_waits_for_a_person_can_be_approved(airflow, slipway, state):
    waiting = dict.fromkeys(ORDER, "success") | {"approval": state, "promote": None, "roll-back": None}
    airflow.dags[DAG] = Script([Frame("running", waiting)])
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")

    code, printed = slipway("approve", "demo")

    assert (code, airflow.runs[DAG, "ci-7"].answers) == (0, {"approval": "Approve"})
    assert "approved: run ci-7" in printed


def test_an_answer_that_airflow_forgets_is_given_again(airflow, slipway):
    airflow.dags[DAG] = Script([Frame("running", {"approval": "awaiting_input"})])
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")
    airflow.runs[DAG, "ci-7"].forgets = 2

    code, printed = slipway("approve", "demo", "--reason", "seen by two")

    assert (code, airflow.runs[DAG, "ci-7"].answers) == (0, {"approval": "Approve"})
    assert airflow.runs[DAG, "ci-7"].reasons == {"approval": "seen by two"}
    assert airflow.count(f"PATCH /api/v2/dags/{DAG}/dagRuns/ci-7/taskInstances/approval") == 3
    assert "approved: run ci-7" in printed


def test_a_question_that_was_only_just_asked_is_answered_later(airflow, slipway, monkeypatch):
    monkeypatch.setattr(approvals, "SETTLED_S", 0.5)
    airflow.dags[DAG] = Script([Frame("running", {"approval": "awaiting_input"})])
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")
    asked_at = airflow.runs[DAG, "ci-7"].asked_at = datetime.now(UTC)

    code, _ = slipway("approve", "demo")

    assert code == 0
    assert datetime.now(UTC) - asked_at > timedelta(seconds=0.5)


def test_an_outage_after_the_answer_costs_nothing(airflow, slipway):
    airflow.dags[DAG] = Script([Frame("running", {"approval": "awaiting_input"})])
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")
    airflow.runs[DAG, "ci-7"].outage = [503] * 3

    assert slipway("approve", "demo")[0] == 0


@pytest.mark.parametrize(
    ("options", "state", "said"),
    [
        ([], "failed", "not approved: run ci-7: marked by Ann"),
        (["--reject", "--reason", "it rhymes"], "success", "not rejected: run ci-7: it was approved"),
        (["--reject", "--reason", "it rhymes"], "failed", "not rejected: run ci-7: marked by Ann"),
    ],
)
def test_an_approval_that_ends_otherwise_is_not_said_to_be_given(airflow, slipway, options, state, said):
    waits = Frame("running", {"approval": "awaiting_input"})
    airflow.dags[DAG] = Script([waits], refusals={"approval": "marked by Ann"})
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")
    airflow.runs[DAG, "ci-7"].goes_on = dict.fromkeys(("Approve", "Reject"), state)

    code, printed = slipway("approve", "demo", *options)

    assert code == 1
    assert said in printed


@pytest.mark.parametrize("state", ["queued", "awaiting_input"])
def test_an_answer_is_given_once_to_a_task_that_does_not_go_on(airflow, slipway, state):
    airflow.dags[DAG] = Script([Frame("running", {"approval": "awaiting_input"})])
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")
    airflow.runs[DAG, "ci-7"].goes_on = {"Approve": state}

    code, printed = slipway("approve", "demo", "--timeout", "1")

    assert code == 124
    assert "Airflow has not resumed run ci-7 within 1 s" in printed
    assert airflow.count(f"PATCH /api/v2/dags/{DAG}/dagRuns/ci-7/taskInstances/approval") == 1


def test_a_rejection_is_known_beside_an_exception_of_something_else(airflow, slipway):
    airflow.dags[DAG] = Script([Frame("running", {"approval": "awaiting_input"})])
    detail = [{"exc_type": "NoCredentialsError", "exc_value": "Unable to locate credentials", "exceptions": []}]
    airflow.dags[DAG].logs["approval"] = [{"event": "no link can be made", "error_detail": detail}]
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")

    code, printed = slipway("approve", "demo", "--reject", "--reason", "it rhymes")

    assert code == 0
    assert "rejected: run ci-7, by ci" in printed


def test_an_answer_is_final(airflow, slipway):
    airflow.dags[DAG] = Script([Frame("running", {"approval": "awaiting_input"})])
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")
    slipway("approve", "demo", "--reject", "--reason", "it rhymes")

    code, printed = slipway("approve", "demo", "--run-id", "ci-7")

    assert code == 65
    assert "already has an answer" in printed
    assert airflow.runs[DAG, "ci-7"].answers == {"approval": "Reject"}
    assert airflow.runs[DAG, "ci-7"].reasons == {"approval": "it rhymes"}


@pytest.mark.parametrize("given", [[], ["--reason", " "], ["--reason", "x" * 501]])
def test_a_rejection_needs_a_reason_that_airflow_takes(airflow, slipway, given):
    airflow.dags[DAG] = Script([Frame("running", {"approval": "awaiting_input"})])
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")

    code, printed = slipway("approve", "demo", "--reject", *given)

    assert code == 65
    assert "a rejection needs a reason" in printed
    assert airflow.runs[DAG, "ci-7"].answers == {}


def test_a_rollback_is_a_run_of_its_own_with_its_reason(airflow, slipway):
    back = {"revert": result("revert", "demo-older is live again")}
    airflow.dags["rollback__demo"] = Script([Frame("success", {"revert": "success"})], back)

    code, printed = slipway("rollback", "demo", "--reason", "wrong answers", "--run-id", "one")

    assert code == 0
    assert "rolled back: demo-older is live again" in printed
    assert airflow.runs["rollback__demo", "one"].conf == {"reason": "wrong answers"}


def test_a_rollback_with_nothing_to_go_back_to_is_a_wrong_input(airflow, slipway):
    logs = {"revert": failed("plan", "AirflowFailException", "channel demo has no previous release").logs["plan"]}
    airflow.dags["rollback__demo"] = Script([Frame("failed", {"revert": "failed"})], {}, logs)

    code, printed = slipway("rollback", "demo", "--reason", "slow")

    assert code == 65
    assert "channel demo has no previous release" in printed


def test_a_rollback_may_name_the_release(airflow, slipway):
    back = {"revert": result("revert", "demo-older is live again, in place of demo-newer")}
    airflow.dags["rollback__demo"] = Script([Frame("success", {"revert": "success"})], back)

    slipway("rollback", "demo", "--reason", "slow", "--to", "demo-older", "--run-id", "one")

    assert airflow.runs["rollback__demo", "one"].conf == {"reason": "slow", "to": "demo-older"}


@pytest.mark.parametrize("reason", [(), ("--reason", " ")])
def test_a_rollback_without_a_reason_starts_nothing(airflow, slipway, reason):
    airflow.dags["rollback__demo"] = Script([Frame("success")])

    code, printed = slipway("rollback", "demo", *reason)

    assert (code, airflow.runs) == (65, {})
    assert "a rollback needs a reason" in printed
    assert '--reason "' in printed


def test_a_rollback_asks_a_person_for_the_reason(airflow, slipway, monkeypatch):
    airflow.dags["rollback__demo"] = Script([Frame("success")])
    terminal = io.StringIO("wrong answers\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)

    assert slipway("rollback", "demo", "--run-id", "one")[0] == 0
    assert airflow.runs["rollback__demo", "one"].conf == {"reason": "wrong answers"}


def test_a_run_is_named_after_who_asked_for_what(airflow, slipway, monkeypatch):
    monkeypatch.setenv("LOGNAME", "ada lovelace")
    airflow.dags[DAG] = promoted()

    slipway("release", "demo", "--no-wait", "--revision", "refs/pr/7")

    ((_, run_id),) = airflow.runs
    assert re.fullmatch(r"cli-ada-lovelace-refs-pr-7-[0-9]{8}T[0-9]{6}-[0-9a-f]{8}", run_id)


def test_a_run_that_was_refused_has_a_note_that_says_why(airflow, slipway):
    airflow.dags[DAG] = refused()

    slipway("release", "demo", "--run-id", "one")

    note = airflow.runs[DAG, "one"].note
    assert note.startswith("refused: demo-555555555555 failed its gate")
    assert note.endswith("answer_accuracy is 0.333, at least 0.95 (n=96)")


def test_the_note_of_a_person_stays(airflow, slipway):
    airflow.dags[DAG] = refused()
    slipway("release", "demo", "--run-id", "one", "--no-wait")
    airflow.runs[DAG, "one"].note = "a test, please ignore"

    slipway("release", "demo", "--run-id", "one")

    assert airflow.runs[DAG, "one"].note == "a test, please ignore"


def test_a_rollback_that_goes_on_is_followed_without_its_reason(airflow, slipway):
    airflow.dags["rollback__demo"] = Script([Frame("success", {"revert": "success"})])
    slipway("rollback", "demo", "--reason", "slow", "--run-id", "one")

    code, _ = slipway("rollback", "demo", "--run-id", "one")

    assert (code, airflow.runs["rollback__demo", "one"].conf) == (0, {"reason": "slow"})


@pytest.fixture
def hub():
    """A Hub with one model, which has one revision; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            there = self.path.startswith("/api/models/slipway/demo-llama/revision/v1")
            error = "RevisionNotFound" if "/slipway/demo-llama/" in self.path else "RepoNotFound"
            refs = {"branches": [{"name": "v1", "ref": "refs/heads/v1", "targetCommit": "a" * 40}], "tags": []}
            model = {"id": "slipway/demo-llama", "sha": "a" * 40, "siblings": []}
            body = json.dumps(refs | {"converts": []} if self.path.endswith("/refs") else model).encode()
            self.send_response(200 if there or self.path.endswith("/refs") else 404)
            self.send_header("X-Error-Code", error)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with LoopbackServer(Handler) as server:
        yield server.endpoint


@pytest.mark.parametrize(
    ("repo", "revision", "starts"),
    [("slipway/demo-llama", "v9", False), ("slipway/demo-llama", "v1", True), ("slipway/private", "v9", True)],
)
def test_a_revision_that_the_hub_does_not_have_starts_no_run(airflow, slipway, tmp_path, hub, repo, revision, starts):
    site = tmp_path / "site.yaml"
    site.write_text(yaml.safe_dump({**SITE, "hub": {"endpoint": hub}}))
    airflow.dags[DAG] = promoted()
    airflow.dags[DAG].description = f"{repo} → int8 → openvino"

    code, printed = slipway("--site", str(site), "release", "demo", "--revision", revision, "--no-wait")

    assert (code, bool(airflow.runs)) == (0 if starts else 65, starts)
    assert starts or "model slipway/demo-llama has no revision 'v9': expected one of v1, or a commit" in printed


def test_a_silent_hub_does_not_keep_a_release_from_starting(airflow, slipway, tmp_path, monkeypatch):
    monkeypatch.setattr(revision_check, "ANSWER_S", 0.1)
    site = tmp_path / "site.yaml"
    airflow.dags[DAG] = promoted()
    airflow.dags[DAG].description = "slipway/demo-llama → int8 → openvino"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        site.write_text(yaml.safe_dump({**SITE, "hub": {"endpoint": endpoint}}))

        code, _ = slipway("--site", str(site), "release", "demo", "--revision", "v1", "--no-wait")

    assert (code, len(airflow.runs)) == (0, 1)


def test_a_direct_rollback_runs_the_step_here_and_asks_no_airflow(airflow, slipway, monkeypatch, tmp_path):
    site, python, asked = tmp_path / "site.yaml", tmp_path / "python", tmp_path / "asked"
    site.write_text(yaml.safe_dump(SITE))
    python.write_text(f'#!/bin/sh\necho "$@" > {asked}\necho demo-older is live again > "$SLIPWAY_TERMINATION_LOG"\n')
    python.chmod(0o755)
    monkeypatch.setattr(step_process, "PYTHON", python)

    code, printed = slipway("--site", str(site), "rollback", "demo", "--direct", "--reason=-slow", "--to", "demo-older")

    assert (code, "demo-older is live again" in printed) == (0, True)
    assert not airflow.runs
    words = asked.read_text().split()
    assert words[:5] == ["-m", "slipway.tasks", "revert", "--name", "demo"]
    assert words[7:] == ["--reason=-slow", "--to=demo-older", "--site", str(site)]


def test_a_direct_rollback_that_ends_in_the_middle_says_how_to_go_on(slipway, monkeypatch, tmp_path):
    site, python = tmp_path / "site.yaml", tmp_path / "python"
    site.write_text(yaml.safe_dump(SITE))
    python.write_text('#!/bin/sh\necho the cluster does not answer > "$SLIPWAY_TERMINATION_LOG"\nexit 75\n')
    python.chmod(0o755)
    monkeypatch.setattr(step_process, "PYTHON", python)

    code, printed = slipway("--site", str(site), "rollback", "demo", "--direct", "--reason=slow")

    run = re.search(r"^run (direct-\S+)", printed, re.MULTILINE)[1]
    assert code == 75
    assert "the cluster does not answer" in printed
    assert f"--run-id {run}" in " ".join(printed.split())


def test_a_restore_deploys_what_the_channel_names(airflow, slipway):
    back = {"revert": result("revert", "demo-older is live, as its channel says: deployed demo-older")}
    airflow.dags["rollback__demo"] = Script([Frame("success", {"revert": "success"})], back)

    code, printed = slipway("restore", "demo", "--run-id", "one")

    assert (code, "restored: demo-older is live, as its channel says" in printed) == (0, True)
    assert airflow.runs["rollback__demo", "one"].conf == {"to": "live"}


def test_a_run_whose_dag_cannot_be_read_is_named_so_that_it_can_be_followed_later(slipway, airflow, monkeypatch):
    monkeypatch.setattr("slipway.cli.runs.follow.IDLE_S", 0.2)
    script = airflow.dags[DAG] = Script([Frame("queued")])

    def broken_once_it_was_triggered():
        until(lambda: airflow.runs)
        script.unreadable = "InputError: site.yaml: nmae"

    with ThreadPoolExecutor() as other:
        other.submit(broken_once_it_was_triggered)
        code, printed = slipway("release", "demo", "--run-id", "ci-8")

    assert code == 65
    assert "found InputError: site.yaml: nmae" in printed
    assert f"goes on, once Airflow can read its DAG, at {airflow.address}/dags/{DAG}/runs/ci-8." in printed


def test_a_rejection_is_told_although_its_log_has_no_exception(airflow, slipway):
    script = refused()
    script.frames = [Frame("failed", script.frames[-1].tasks | {"gate": "success", "approval": "failed"})]
    script.logs["approval"] = [{"event": "Task exited", "level": "error", "exit_code": 1}]
    script.refusals["approval"] = "approval: rejected by Ann: it rhymes"
    airflow.dags[DAG] = script

    assert "failed: approval: rejected by Ann: it rhymes" in slipway("release", "demo")[1]


def rolled_back_in_vain(script, tasks):
    """The run's roll-back failed after the task that failed first."""
    detail = {"exc_type": "AirflowException", "exc_value": "roll-back: the API server has not answered", "frames": []}
    script.logs["roll-back"] = [{"event": "Task failed", "error_detail": [{**detail, "is_cause": False}]}]
    script.frames = [Frame("failed", {**script.frames[-1].tasks, **tasks, "roll-back": "failed"})]
    return script


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (lambda: failed("roll-out", "AirflowException", "roll-out: no node"), "failed: roll-out: no node"),
        (refused, "refused: demo-555555555555 failed its gate"),
    ],
)
def test_the_last_line_says_that_roll_back_failed_too_and_what_is_still_there(airflow, slipway, script, says):
    airflow.dags[DAG] = rolled_back_in_vain(script(), {})

    code, printed = slipway("release", "demo")

    assert code == 1
    assert says in printed
    assert "Roll-back failed too: the API server has not answered." in printed
    assert "The candidate, its Service and the lease of demo stay" in printed
    assert "`slipway restore demo`" in printed
