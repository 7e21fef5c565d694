"""Releases that lm-evaluation-harness scores, in a pod of its own image, through Airflow."""

import pytest

from slipway.airflow.runs import run_identity
from slipway.tasks.contracts.stored.artifact import STAGES
from tests.local.chain.gated_model import DAG, NAME, QUESTIONS, TASK

pytestmark = pytest.mark.timeout(3600)

SCORE = TASK["task"]


def lines(view):
    """The verdicts of the gate's lines by what they judge."""
    return {line["what"]: line["verdict"] for line in view.results["gate"].data["report"]["judgements"]}


def report(chain, view):
    """The scores that the run recorded, and the number of questions in its log of samples."""
    plan = view.results["plan"].data["plan"]
    evidence = chain.layout.evidence(NAME, plan["release_id"], plan["run"])
    log = chain.bytes(f"{evidence}/harness-candidate-{SCORE}.jsonl").splitlines()
    return chain.read(f"{evidence}/harness.json"), len(log)


def test_a_model_that_meets_its_score_is_promoted_with_the_harness_in_its_verdict(chain, gated):
    view = gated.view

    assert view.run.state == "success", chain.said(view)
    assert set(gated.steps) >= set(STAGES)
    assert gated.steps.count("evaluate") == 1
    assert f"{SCORE} exact_match" in view.results["evaluate"].summary
    assert (view.results["gate"].data["verdict"], set(lines(view).values())) == ("passed", {"passed"})
    assert [what for what in lines(view) if what.startswith(SCORE)]
    found, questions = report(chain, view)
    assert (found["image"], questions) == (chain.site.images.harness, QUESTIONS)
    assert found["scores"][0]["scores"]["exact_match,stripped"]["value"] >= 0.95
    assert chain.live(NAME) == view.results["plan"].data["release_id"]


def test_a_damaged_model_is_refused_by_answers_and_score_and_nobody_who_asks_the_live_one_notices(chain, gated):
    live, service, deployments = chain.live(NAME), chain.live_service(NAME), chain.deployments(NAME)

    run_id = "gated-damaged"
    with chain.counting_pods(run=run_identity(run_id)) as pods:
        run = chain.trigger(DAG, run_id, revision="damaged")
        chain.reach_candidate(NAME)
        with chain.traffic(NAME) as traffic:
            view = chain.follow(run)

    assert view.run.state == "failed"
    assert list(pods.steps.values()).count("evaluate") == 1
    assert view.results["gate"].data["verdict"] == "failed"
    failed = [what for what, verdict in lines(view).items() if verdict != "passed"]
    assert {what.partition(" ")[0] for what in failed} == {"answer_accuracy", SCORE}
    found, _ = report(chain, view)
    assert found["scores"][0]["scores"]["exact_match,stripped"]["value"] < 0.6
    states = {name: task.state for name, task in view.tasks.items()}
    assert (states["gate"], states["promote"], states["roll-back"]) == ("failed", "upstream_failed", "success")
    assert traffic.requests > 20
    assert traffic.failures == []
    assert (chain.live(NAME), chain.live_service(NAME), chain.deployments(NAME)) == (live, service, deployments)
    assert chain.candidate(NAME) is None
    assert chain.channel(NAME)["history"][0]["event"] == "refused"
