from datetime import UTC, datetime

import pytest
from airflow.providers.standard.exceptions import HITLTriggerEventError
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from plugins.slipway_airflow.approval import Approval, evidence
from tasks.contracts.gate import GateReport, Judgement, Verdict
from tasks.contracts.gate_spec import Expectation


def answer(option):
    user = {"id": "ann", "name": "Ann"}
    return {
        "chosen_options": [option],
        "params_input": {},
        "responded_at": datetime.now(UTC),
        "responded_by_user": user,
    }


def test_a_run_without_approval_asks_nobody():
    with pytest.raises(AirflowSkipException, match="needs no approval"):
        Approval(task_id="approval", name="demo").execute({"params": {"approval": "none"}})


def test_the_question_shows_every_judgement_and_where_the_evidence_lies(runs):
    judgement = Judgement(
        expectation=Expectation(metric="error_rate", at_most=0.0),
        what="error_rate",
        verdict=Verdict.PASSED,
        observed=0.0,
        limit=0.0,
        unit="",
        count=64,
        why="error_rate is 0, at most 0 (n=64)",
    )
    report = GateReport(release_id="demo-1", live="demo-0", verdict=Verdict.PASSED, judgements=(judgement,))
    data = {"report": report.model_dump(mode="json"), "evidence": "s3://slipway/evidence"}

    text = evidence(runs.result("gate", data=data))

    assert "`demo-1` would replace the live release `demo-0`" in text
    assert "- passed: error_rate is 0, at most 0 (n=64)" in text
    assert "`s3://slipway/evidence`" in text


def test_a_rejection_is_final_and_names_who_rejected():
    with pytest.raises(AirflowFailException, match="rejected by Ann"):
        Approval(task_id="approval", name="demo").execute_complete({}, answer("Reject"))


def test_an_answer_that_airflow_could_not_take_is_no_rejection():
    event = {"error": "the database does not answer", "error_type": "unknown"}

    with pytest.raises(HITLTriggerEventError) as caught:
        Approval(task_id="approval", name="demo").execute_complete({}, event)

    assert not isinstance(caught.value, AirflowFailException)


def test_an_approval_lets_the_release_go_live():
    decision = Approval(task_id="approval", name="demo").execute_complete({}, answer("Approve"))

    assert decision["chosen_options"] == ["Approve"]
