"""The section gate.harness of a spec."""

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.fit.step_kinds import steps_of
from slipway.tasks.contracts.spec.harness import Harness, HarnessTask
from slipway.tasks.contracts.step_names import STEPS
from tests.fakes.releases import SPEC, spec

TASK = {"task": "gsm8k", "at_least": 0.5}


def harness(*tasks, **changes):
    return {**SPEC["gate"], "harness": {"tasks": list(tasks), **changes}}


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ({"task": "gsm8k"}, "give at_least, max_drop_of_live or both"),
        ({**TASK, "samples": 20}, "samples 20 is below min_count 30"),
        (
            {**TASK, "questions": "hf://datasets/a/b@main/q.jsonl", "num_fewshot": 2},
            "num_fewshot does not apply to questions",
        ),
        ({**TASK, "at_least": 50}, "less than or equal to 1"),
        ({**TASK, "task": "../x"}, "String should match pattern"),
        ({**TASK, "trust_remote_code": True}, "Extra inputs are not permitted"),
    ],
)
def test_a_task_that_could_not_be_judged_is_refused(task, why):
    with pytest.raises(ValidationError, match=why):
        HarnessTask.model_validate(task)


def test_each_limit_is_a_line_of_its_own():
    task = HarnessTask.model_validate({**TASK, "filter": "strict-match", "max_drop_of_live": 0.02})

    assert [(line.score, line.is_upper, line.limit) for line in task.limits] == [
        ("exact_match,strict-match", False, 0.5),
        ("exact_match,strict-match", True, 0.02),
    ]


def test_a_limit_of_zero_is_a_limit():
    assert HarnessTask.model_validate({"task": "gsm8k", "max_drop_of_live": 0}).limits[0].limit == 0


def test_a_task_is_named_once():
    with pytest.raises(ValidationError, match="names gsm8k more than once"):
        Harness.model_validate({"tasks": [TASK, TASK]})


def test_only_a_spec_with_a_harness_has_the_step():
    assert steps_of(spec(gate=harness(TASK))) == STEPS
    assert [step for step in STEPS if step not in steps_of(spec())] == ["evaluate"]


@pytest.mark.parametrize("kind", [{}, {"kind": "vllm", "gpu": "NVIDIA-L4"}])
def test_a_model_that_takes_prompts_only_needs_the_completions_api(kind):
    engine = {**SPEC["engine"], **kind}
    changes = {"engine": {**engine, "options": {"chat_template": "none"}}, "quantization": {"format": "none"}}

    with pytest.raises(ValidationError, match="takes prompts only; choose completions"):
        spec(gate=harness(TASK), **changes)
    assert spec(gate=harness(TASK), engine=engine, quantization={"format": "none"}).gate.harness.api == "chat"
    assert spec(gate=harness(TASK, api="completions"), **changes).gate.harness.api == "completions"
