"""A release that lm-evaluation-harness scores, in a pod of its own image, through Airflow."""

import pytest

from slipway.tasks.contracts.stored.artifact import STAGES
from tests.local.chain.adapted_model import NAME, QUESTIONS, TASK

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
