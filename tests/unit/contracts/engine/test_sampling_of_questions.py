"""Questions of a gate that set how their answers are generated: what a spec may say, and what an engine kind obeys."""

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS
from slipway.tasks.contracts.engine.sampling import SAMPLING_NAMES
from slipway.tasks.contracts.spec.question import SmokeQuestion
from tests.fakes.releases import EVERY_PARAMETER, SPEC, spec

EVERY = EVERY_PARAMETER | {"stop": "\n"}
ON_GPU = {"trt-engine", "llmapi", "vllm"}


def asked(kind, smoke=None, quality=None):
    engine = {**SPEC["engine"], "kind": kind, **({"gpu": "NVIDIA-L4"} if kind in ON_GPU else {})}
    gate = {**SPEC["gate"], "smoke": [{**SPEC["gate"]["smoke"][0], **(smoke or {})}]}
    if quality is not None:
        gate["quality"] = {"dataset": "hf://datasets/org/questions@main/a.jsonl", **quality}
    return spec(engine=engine, quantization={"format": "none"}, gate=gate)


def question(**parameters):
    return SmokeQuestion(prompt="?", answer="!", **parameters)


def test_every_parameter_may_be_set_and_what_changes_nothing_is_left_out():
    assert EVERY.keys() == SAMPLING_NAMES
    assert question(**EVERY).requested() == {**EVERY, "stop": ["\n"]}
    assert question().requested() == {}
    assert question(seed=3).requested() == {}
    assert question(temperature=0, stop=[], top_p=1, top_k=-1, min_tokens=0, presence_penalty=0).requested() == {}
    assert question(frequency_penalty=0.0, repetition_penalty=1.0, bad_words=[], top_k=0).requested() == {}


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"temperature": -1}, "greater than or equal to 0"),
        ({"temperature": float("inf")}, "finite"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"seed": 2**63}, "less than or equal to"),
        ({"stop": ""}, "at least 1 character"),
        ({"stop": ["x"] * 17}, "at most 16"),
        ({"top_p": 0}, "greater than 0"),
        ({"top_p": 1.1}, "less than or equal to 1"),
        ({"top_k": -2}, "greater than or equal to -1"),
        ({"min_tokens": -1}, "greater than or equal to 0"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens 9 is above max_tokens 8"),
        ({"presence_penalty": 2.1}, "less than or equal to 2"),
        ({"frequency_penalty": -2.1}, "greater than or equal to -2"),
        ({"repetition_penalty": 0}, "greater than or equal to 0.01"),
        ({"bad_words": [""]}, "at least 1 character"),
        ({"tempature": 0.5}, "Extra inputs are not permitted"),
    ],
)
def test_a_value_out_of_its_range_is_refused(parameter, message):
    with pytest.raises(ValidationError, match=message):
        question(**parameter)


@pytest.mark.parametrize("kind", ENGINE_KINDS)
@pytest.mark.parametrize("name", sorted(SAMPLING_NAMES))
def test_a_parameter_that_the_kind_does_not_obey_is_refused_by_its_name(kind, name):
    parameters = {name: EVERY[name], **({"temperature": 0.5} if name == "seed" else {})}
    if name in ENGINE_KINDS[kind].sampling:
        assert asked(kind, parameters, parameters).gate.smoke[0].requested()[name]
        return
    for where in ({"smoke": parameters}, {"quality": parameters}):
        with pytest.raises(
            ValidationError, match=rf"gate\.{next(iter(where))}: {kind} does not obey {name}: remove it"
        ):
            asked(kind, **where)


def test_a_refusal_names_the_kinds_that_obey():
    with pytest.raises(ValidationError, match="or choose engine kind trt-engine, vllm"):
        asked("openvino", {"bad_words": ["no"]})


def test_a_seed_of_a_greedy_answer_asks_nothing_of_any_kind():
    assert asked("llmapi", {"seed": 3}).gate.smoke[0].seed == 3
