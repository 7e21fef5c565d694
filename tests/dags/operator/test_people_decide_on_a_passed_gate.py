from datetime import UTC, datetime

import pytest
from airflow.providers.standard.exceptions import HITLTriggerEventError
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException
from markdown_it import MarkdownIt

from slipway.airflow.approval import Approval, changes, evidence, interrupted, risk
from slipway.airflow.refusals import Refusal
from tests.dags.results_to_approve import CANARY, passed, planned
from tests.support.strange_texts import INLINE, PROSE, texts

REPORT = "https://airflow.example/dags/release__demo/runs/manual__1/plugin/slipway"


def answer(option, reason=""):
    user = {"id": "ann", "name": "Ann"}
    return {
        "chosen_options": [option],
        "params_input": {"reason": reason} if reason else {},
        "responded_at": datetime.now(UTC),
        "responded_by_user": user,
    }


def test_a_run_without_approval_asks_nobody():
    with pytest.raises(AirflowSkipException, match="needs no approval"):
        Approval(task_id="approval", name="demo", keep=2).execute({"params": {"approval": "none"}})


def test_the_question_shows_every_judgement_and_where_the_evidence_lies(runs):
    text = evidence(passed(runs), "")

    assert "`demo-1` would replace the live release `demo-0`" in text
    assert "- passed: error_rate is 0, at most 0 (n=64)" in text
    assert "`s3://slipway/team-a/releases/demo/evidence`" in text


def test_the_question_shows_what_changes_and_what_plan_warned_of(runs):
    text = changes(planned(runs, "files.model.safetensors: 1a → 2b", warnings=["the KV cache holds 3 sequences"]))

    assert "commit `cccccccccccc`" in text
    assert "- download: files.model.safetensors: 1a → 2b" in text
    assert "- build: download changed" in text
    assert "- warning: the KV cache holds 3 sequences" in text


def test_the_question_says_how_the_requests_would_move(runs):
    assert f"If you approve: {CANARY}." in changes(planned(runs))
    assert CANARY not in changes(planned(runs, live=None))


def test_a_long_list_of_changes_is_cut(runs):
    text = changes(planned(runs, *(f"files.{number}: a → b" for number in range(30))))

    assert text.count("\n- ") == 21
    assert "- and 11 more: see the log of plan" in text


@pytest.mark.parametrize(
    ("live", "keep", "words"),
    [
        ("demo-0", 2, "`slipway rollback demo` returns to `demo-0`, whose pods stay"),
        ("demo-0", 1, "no way back: `rollout.keep` is 1, so `demo-0` is removed"),
        (None, 2, "there is no release to go back to"),
    ],
)
def test_the_question_says_what_is_risked(runs, live, keep, words):
    assert words in risk("demo", passed(runs, live), keep)


LOST = {"live": "demo-0", "replicas": 3, "seconds": 60.0}


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (0, "**Until you decide, `demo-0` is stopped, so every request fails**"),
        (1, "**Until you decide, `demo-0` runs with 1 of 3 replicas**"),
    ],
)
def test_the_question_says_what_waiting_costs_while_the_candidate_has_the_live_releases_gpus(runs, kept, words):
    plan = planned(runs)
    found = interrupted(plan.model_copy(update={"data": {**plan.data, "interruption": {**LOST, "kept": kept}}}))

    assert words in found[0]
    assert interrupted(plan) == []


def test_the_way_back_is_slower_where_the_release_before_keeps_no_pods(runs):
    assert "They start again on GPUs" in risk("demo", passed(runs), 2, warm=False)


@pytest.mark.parametrize("text", [*texts("alert(1)", "http://stranger.example/x"), "![x](http://stranger.example/x)"])
def test_texts_of_strangers_stay_in_the_code_blocks_of_the_question(runs, text):
    plan, gate = planned(runs, text, warnings=[text]), passed(runs, why=text, not_judged=[text])
    tokens = MarkdownIt().parse("\n\n".join((evidence(gate, REPORT), changes(plan))))

    assert [each.type for each in tokens if each.type not in PROSE] == ["fence", "fence"]
    inline = [child for each in tokens for child in each.children or [] if child.type not in INLINE]
    assert [child.type for child in inline] == ["link_open", "link_close"]
    assert inline[0].attrs["href"] == REPORT


class Pulled:
    """A task instance that has the results of earlier steps."""

    dag_id = "release__demo"

    def __init__(self, results):
        self.results, self.pushed = results, {}

    def xcom_push(self, key, value):
        self.pushed[key] = value

    def xcom_pull(self, task_ids, key):
        return self.results[task_ids]


def test_a_run_that_needs_approval_asks_with_all_of_it(runs, monkeypatch):
    results = {"gate": passed(runs), "plan": planned(runs, "files.x: a → b")}
    asked = Approval(task_id="approval", name="demo", keep=2)
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: self.body)

    ti = Pulled({step: result.model_dump(mode="json") for step, result in results.items()})
    body = asked.execute({"params": {"approval": "human"}, "ti": ti, "run_id": "manual__1"})

    assert all(part in body for part in ("error_rate is 0", "files.x: a → b", "returns to `demo-0`"))


@pytest.mark.parametrize(("reason", "said"), [("", ""), ("it rhymes", ": it rhymes")])
def test_a_rejection_is_final_and_says_who_rejected_and_why(reason, said):
    ti = Pulled({})
    with pytest.raises(Refusal, match="rejected by Ann"):
        Approval(task_id="approval", name="demo", keep=2).execute_complete({"ti": ti}, answer("Reject", reason))

    assert ti.pushed == {"why": f"approval: rejected by Ann{said}"}


def test_an_answer_that_airflow_could_not_take_is_no_rejection():
    event = {"error": "the database does not answer", "error_type": "unknown"}

    with pytest.raises(HITLTriggerEventError) as caught:
        Approval(task_id="approval", name="demo", keep=2).execute_complete({}, event)

    assert not isinstance(caught.value, Refusal)


def test_an_approval_lets_the_release_go_live():
    decision = Approval(task_id="approval", name="demo", keep=2).execute_complete({}, answer("Approve"))

    assert decision["chosen_options"] == ["Approve"]
