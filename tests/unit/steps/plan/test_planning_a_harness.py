"""What plan checks and pins of gate.harness."""

import pytest

from slipway.tasks.contracts.spec.harness import Harness
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.engines.preflight.harness import CODE, datasets_of, tasks_by_dataset
from slipway.tasks.steps import plan
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import SPEC, spec
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import SITE, workspace
from tests.support.refused import refused

OURS = "hf://datasets/org/questions@main/eval.jsonl"
GSM8K = "hf://datasets/openai/gsm8k@main/any.jsonl"
IMAGES = {**SITE["images"], "harness": "harness:1"}
FILES = dict.fromkeys(("tokenizer.json", "tokenizer_config.json"), b"{}") | {"config.json": b'{"model_type": "llama"}'}


def asked(*tasks, **harness):
    return spec(gate={**SPEC["gate"], "harness": {"tasks": list(tasks), **harness}})


@pytest.fixture
def planned(tmp_path):
    hub = MemoryHub(
        {"slipway/demo-llama": {"v1": {**FILES, "model.safetensors": b"weights"}}},
        {OURS: [{"prompt": "?", "answer": "!"}], GSM8K: []},
    )
    store = MemoryObjectStore()

    def run(wanted, images=IMAGES):
        place = workspace(tmp_path, hub=hub, store=store, images=images)
        outcome = plan.run(PlanRequest(spec=wanted, run="run-1"), place)
        return Release.model_validate_json(store.read_bytes(outcome.data["release"])), place

    return run


def test_questions_are_pinned_and_stored_and_a_task_of_lm_eval_has_its_datasets_commit(planned):
    ours = {"task": "ours", "questions": OURS, "at_least": 0.5}
    release, place = planned(asked(ours, {"task": "gsm8k", "at_least": 0.5}))

    datasets = release.plan.datasets
    assert datasets.harness_commits == {"gsm8k": "d" * 40}
    assert place.datasets.read(datasets.harness_questions["ours"]) == [{"prompt": "?", "answer": "!"}]


def test_a_harness_changes_no_key(planned):
    without, _ = planned(spec())
    with_one, _ = planned(asked({"task": "gsm8k", "at_least": 0.5}))

    assert with_one.id == without.id


def test_a_site_without_the_image_says_what_to_add(planned):
    with refused(what="gate.harness needs an image", remedy="add images.harness to the site file"):
        planned(asked({"task": "gsm8k", "at_least": 0.5}), images=SITE["images"])


@pytest.mark.parametrize("task", ["humaneval", "humaneval_instruct", "mbpp"])
def test_a_task_that_runs_the_models_programs_is_refused(planned, task):
    with refused(what=f"names {task}, which runs programs that the model wrote"):
        planned(asked({"task": task, "at_least": 0.5}))


@pytest.mark.parametrize(
    "task",
    [
        pytest.param("hellaswag", id="multiple_choice"),
        pytest.param("lambada_openai", id="loglikelihood"),
        pytest.param("mmlu", id="group"),
        pytest.param("gsm9k", id="unknown"),
    ],
)
def test_a_task_that_generates_no_text_is_refused_by_name(planned, task):
    with refused(what=f"names {task}, which is not a task", remedy="log probabilities of the prompt"):
        planned(asked({"task": task, "at_least": 0.5}))


def test_a_misspelt_task_is_answered_with_those_like_it():
    with refused(expected="such as gsm8k"):
        datasets_of(Harness.model_validate({"tasks": [{"task": "gsm8", "at_least": 0.5}]}))


def test_a_task_of_your_own_may_have_any_name():
    tasks = [{"task": "humaneval", "questions": OURS, "at_least": 0.5}]

    assert datasets_of(Harness.model_validate({"tasks": tasks})) == {}


def test_the_table_has_each_name_once():
    names = [name for names in tasks_by_dataset().values() for name in names]

    assert len(names) == len(set(names))
    assert "mbpp" in tasks_by_dataset()[CODE]
