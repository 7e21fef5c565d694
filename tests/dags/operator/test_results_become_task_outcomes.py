import re

import pytest
from airflow.sdk import RetryAction
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from slipway.airflow.approval import Approval
from slipway.airflow.refusals import Refusal
from slipway.airflow.step_documents import MAX_RESULT_BYTES
from slipway.airflow.step_operator import StepOperator
from tests.dags.step_runs import LAYOUT
from tests.fakes.kube.kubernetes_pods import PodEnd


def test_the_steps_result_becomes_the_tasks_xcom(runs):
    runs.planned()
    runs.ends(runs.result("roll-out", data={"deployment": "demo-1"}))

    value = runs.execute("roll-out")

    assert value["outcome"] == "done"
    assert value["data"] == {"deployment": "demo-1"}


def test_a_succeeded_pod_is_deleted_and_a_failed_one_is_kept_for_its_log(runs):
    runs.planned()
    runs.ends(runs.result("roll-out"))
    runs.execute("roll-out")
    assert runs.cluster.pods == {}

    runs.ends(None, exit_code=70, message="boom")
    with pytest.raises(AirflowException):
        runs.execute("smoke-test")
    assert [pod["metadata"]["labels"]["already_checked"] for pod in runs.cluster.pods.values()] == ["True"]


@pytest.mark.parametrize(("code", "final"), [(65, True), (70, False), (75, False)])
def test_the_exit_code_decides_whether_airflow_tries_again(runs, code, final):
    runs.planned()
    runs.ends(runs.failed("build", code, "spec.engine: found x, expected y. Do z."), exit_code=code)

    with pytest.raises(AirflowException, match=r"build: spec.engine: found x, expected y. Do z.") as caught:
        runs.execute("build")

    assert isinstance(caught.value, AirflowFailException) is final


def test_the_log_says_on_a_line_of_its_own_what_to_do(runs, caplog):
    runs.planned()
    failed = runs.failed("build", 65, "spec.engine: found x. Do z.")
    error = failed.error.model_copy(update={"remedy": "Do z."})
    runs.ends(failed.model_copy(update={"error": error}), exit_code=65)

    with pytest.raises(AirflowFailException):
        runs.execute("build")

    assert "What to do: Do z." in [record.getMessage() for record in caplog.records]


def test_a_failed_task_leaves_the_result_of_its_step_but_not_as_that_of_a_success(runs):
    runs.planned()
    runs.ends(runs.failed("promote", 65, "spec.engine: found x. Do z."), exit_code=65)

    with pytest.raises(AirflowFailException):
        runs.execute("promote")

    assert runs.xcoms["promote", "failed_result"]["error"]["message"] == "spec.engine: found x. Do z."
    assert ("promote", "return_value") not in runs.xcoms


def test_without_a_result_the_termination_message_is_the_reason(runs):
    runs.planned()
    runs.ends(None, exit_code=65, message="site.yaml is absent", reason="Error")

    with pytest.raises(AirflowFailException, match=r"build: site.yaml is absent \(exit code 65, Error\)"):
        runs.execute("build")


def test_a_container_that_outgrew_its_memory_is_not_tried_again(runs):
    runs.planned()
    runs.ends(None, exit_code=137, reason="OOMKilled")

    with pytest.raises(AirflowFailException, match="exceeded its memory limit"):
        runs.execute("quantize")


def test_a_result_of_an_earlier_try_is_not_taken_for_the_reason(runs):
    runs.planned()
    runs.write(runs.failed("build", 65, "the old reason", started_at=runs.long_ago()))
    runs.ends(None, exit_code=70, message="the new reason")

    with pytest.raises(AirflowException, match="the new reason") as caught:
        runs.execute("build")

    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("stale", ["run", "time"])
def test_a_success_without_a_result_of_its_own_is_a_failure(runs, stale):
    runs.planned()
    changes = {"run": "another-run"} if stale == "run" else {"started_at": runs.long_ago()}
    runs.write(runs.result("publish", **changes))
    runs.ends(None)

    with pytest.raises(AirflowException, match="its result is missing"):
        runs.execute("publish")


def test_a_stage_that_is_stored_needs_no_pod(runs):
    runs.planned(stored=("download",))

    value = runs.execute("download")

    assert value["outcome"] == "stored"
    assert value["data"]["uri"] == f"s3://slipway/team-a/artifacts/download/{'1' * 64}"
    assert runs.cluster.asked == []


def test_a_release_on_one_node_starts_no_pod_to_measure_a_network(runs):
    runs.planned()

    value = runs.execute("check-network")

    assert (value["outcome"], value["summary"]) == ("stored", "the release is served on one node; no pod was started")
    assert runs.cluster.asked == []


@pytest.mark.parametrize("step", ["download", "publish", "roll-out", "gate", "promote", "roll-back"])
def test_a_plan_with_nothing_to_do_skips_the_steps(runs, step):
    runs.planned(action="nothing")

    with pytest.raises(AirflowSkipException, match="plan is done"):
        runs.execute(step)

    assert runs.cluster.asked == []


def test_nothing_is_rolled_back_when_nothing_was_planned(runs):
    with pytest.raises(AirflowSkipException, match="no release was planned"):
        runs.execute("roll-back")


def test_nothing_is_rolled_back_of_a_release_that_was_promoted(runs):
    runs.planned()
    runs.states["roll-out"] = "success"
    runs.xcoms["promote", "return_value"] = runs.result("promote").model_dump(mode="json")

    with pytest.raises(AirflowSkipException, match="was promoted, so there is nothing to undo"):
        runs.execute("roll-back")

    assert runs.cluster.asked == []


def test_a_release_is_rolled_back_although_an_attempt_that_was_cleared_had_promoted_one(runs):
    runs.planned()
    runs.xcoms["promote", "return_value"] = runs.result("promote").model_dump(mode="json")
    runs.states |= {"roll-out": "success", "gate": "failed", "promote": "upstream_failed"}
    runs.ends(runs.result("roll-back"))

    assert runs.execute("roll-back")["outcome"] == "done"


@pytest.mark.parametrize("body", [b"{", b'{"step": "gate"}', b" " * (MAX_RESULT_BYTES + 1)])
def test_a_result_that_is_none_fails_its_step_by_name(runs, body):
    runs.planned()
    uri = LAYOUT.result("demo", runs.release.id, "gate")

    def written(_):
        runs.bucket.put_object(Key=uri.removeprefix("s3://slipway/"), Body=body)
        return PodEnd()

    runs.cluster.script = written
    with pytest.raises(AirflowFailException, match=re.escape(uri)):
        runs.execute("gate")


@pytest.mark.parametrize(("state", "pods_started"), [("upstream_failed", 0), ("failed", 1), ("success", 1)])
def test_roll_back_runs_only_where_roll_out_began(runs, state, pods_started):
    runs.planned()
    runs.states["roll-out"] = state
    runs.ends(runs.result("roll-back"))

    if pods_started:
        runs.execute("roll-back")
    else:
        with pytest.raises(AirflowSkipException, match="was not rolled out"):
            runs.execute("roll-back")

    assert len(runs.cluster.created) == pods_started


@pytest.mark.parametrize(
    "task", [lambda runs: runs.operator("gate"), lambda _: Approval(task_id="approval", name="demo", keep=2)]
)
def test_a_refusal_is_not_tried_again_and_anything_else_is(runs, task):
    decide = task(runs).retry_policy.evaluate

    assert decide(Refusal("no"), try_number=1, max_tries=3).action is RetryAction.FAIL
    assert decide(AirflowException("no node"), try_number=1, max_tries=3).action is RetryAction.DEFAULT


@pytest.mark.parametrize("verdict", ["failed", "inconclusive", None])
def test_a_gate_that_does_not_pass_fails_the_task_in_words(runs, verdict):
    runs.planned()
    runs.ends(runs.result("gate", summary="itl_ms p99 is 80 ms, at most 50 ms", data={"verdict": verdict}))

    with pytest.raises(Refusal, match=r"the release is refused. itl_ms p99 is 80 ms"):
        runs.execute("gate")

    assert runs.xcoms["gate", "return_value"]["data"]["verdict"] == verdict


@pytest.mark.parametrize("verdict", ["failed", "inconclusive", None])
def test_a_drill_that_does_not_pass_fails_the_task_and_leaves_its_report(runs, verdict):
    runs.ends(
        runs.result("drill", summary="1 of 90 requests failed", data={"verdict": verdict, "report": {"live": "a"}})
    )

    with pytest.raises(Refusal, match="drill: 1 of 90 requests failed"):
        runs.execute("drill")
    assert runs.xcoms["drill", "return_value"]["data"]["report"] == {"live": "a"}


def test_a_drill_with_nothing_to_try_out_is_skipped(runs):
    runs.ends(runs.result("drill", summary="no drill: a release of demo is in progress", data={"verdict": "skipped"}))

    with pytest.raises(AirflowSkipException, match="a release of demo is in progress"):
        runs.execute("drill")


def test_a_gate_that_passed_succeeds(runs):
    runs.planned()
    runs.ends(runs.result("gate", data={"verdict": "passed"}))

    assert runs.execute("gate")["data"]["verdict"] == "passed"


def test_the_operator_has_no_templates():
    assert StepOperator.template_fields == ()
