"""Releases that lm-evaluation-harness scores, in a pod of its own image, through Airflow."""

import pytest
import yaml

from slipway.airflow.runs import run_identity
from slipway.tasks.contracts.stored.artifact import STAGES
from tests.local.chain.own_stack import SPECS
from tests.local.chain.whole_chain import SPEC
from tests.support.paths import ENVIRONMENTS

pytestmark = pytest.mark.timeout(1200)

NAME, QUESTIONS = "scored-llama", 40
DAG = f"release__{NAME}"
LOAD = {
    "concurrency": [1],
    "request_rate": [10],
    "requests": 4,
    "warmup": 0,
    "prompts": {"input_tokens": 12, "input_tokens_stddev": 2, "output_tokens": 8},
}
TASK = {"task": "our-questions", "questions": "hf://datasets/slipway/demo-questions@main/eval.jsonl"}


@pytest.fixture(scope="module")
def scored(chain):
    """Airflow has the DAG of a spec that only its score can fail."""
    if chain.stack is None:
        pytest.skip("needs an Airflow whose specs a test may change")
    python = ENVIRONMENTS / "harness" / "bin" / "python"
    if not python.exists():
        pytest.skip("there is no environment harness: python3 -m local.environments harness")
    harness = {"concurrency": 2, "tasks": [{**TASK, "samples": QUESTIONS, "max_tokens": 32, "at_least": 0.9}]}
    gate = {
        "smoke": SPEC["gate"]["smoke"][:1],  # which the damaged model answers too
        "benchmark": LOAD,
        "harness": harness,
        "expect": [{"metric": "error_rate", "at_most": 0.0}],
    }
    (SPECS / "scored.yaml").write_text(yaml.safe_dump(SPEC | {"name": NAME, "gate": gate}))
    yield chain
    (SPECS / "scored.yaml").unlink()


def release(chain, revision):
    """A run to its end, and the steps of its pods."""
    run_id = f"scored-{revision}"
    with chain.counting_pods(run=run_identity(run_id)) as pods:
        view = chain.follow(chain.trigger(DAG, run_id, revision=revision))
    assert pods.problem is None
    return view, list(pods.steps.values())


def lines(view):
    """The verdicts of the gate's lines by what they judge."""
    return {line["what"]: line["verdict"] for line in view.results["gate"].data["report"]["judgements"]}


def report(chain, view):
    """The scores that the run recorded, and the number of questions in its log of samples."""
    plan = view.results["plan"].data["plan"]
    evidence = chain.layout.evidence(NAME, plan["release_id"], plan["run"])
    log = chain.bytes(f"{evidence}/harness-candidate-our-questions.jsonl").splitlines()
    return chain.read(f"{evidence}/harness.json"), len(log)


def test_a_model_that_meets_its_score_is_promoted_with_the_harness_in_its_verdict(scored, promoted):
    view, pods = release(scored, "v1")

    assert view.run.state == "success", {name: result.summary for name, result in view.results.items()}
    stored = {stage for stage in STAGES if stage in view.results and view.results[stage].outcome == "stored"}
    planned = view.results["plan"].data["stages"]
    assert stored == {stage for stage in STAGES if planned[stage]["stored"]} >= {"download"}
    assert stored & set(pods) == set()
    assert pods.count("evaluate") == 1
    assert "our-questions exact_match" in view.results["evaluate"].summary
    assert (view.results["gate"].data["verdict"], set(lines(view).values())) == ("passed", {"passed"})
    assert [what for what in lines(view) if what.startswith("our-questions")]
    found, questions = report(scored, view)
    assert (found["image"], questions) == (scored.site.images.harness, QUESTIONS)
    assert found["scores"][0]["scores"]["exact_match,stripped"]["value"] >= 0.95
    assert scored.live(NAME) == view.results["plan"].data["release_id"]


def test_a_damaged_model_fails_by_its_score_alone_and_is_rolled_back(scored, promoted):
    live = scored.live(NAME)

    view, pods = release(scored, "damaged")

    assert view.run.state == "failed"
    assert pods.count("evaluate") == 1
    assert view.results["gate"].data["verdict"] == "failed"
    failed = [what for what, verdict in lines(view).items() if verdict != "passed"]
    assert [what.partition(" ")[0] for what in failed] == ["our-questions"]
    found, _ = report(scored, view)
    assert found["scores"][0]["scores"]["exact_match,stripped"]["value"] < 0.6
    assert view.tasks["roll-back"].state == "success"
    assert scored.live(NAME) == live
    assert scored.cluster.service_address(f"{NAME}-candidate") is None
