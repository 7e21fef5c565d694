"""A question with sampling parameters, as each kind of model takes it."""

import json

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest, columns, prompt_columns
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.serving.rendered.questions import request_of
from tests.fakes.releases import EVERY_PARAMETER
from tests.support.refused import refused

OURS = frozenset({"text_input", "max_tokens", "temperature", "seed", "stop_words", "bad_words"}) | {
    *("top_p", "top_k", "min_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty")
}
REQUEST = request_of(SmokeQuestion(prompt="Hi?", answer="Hi", max_tokens=8, **EVERY_PARAMETER))


def test_each_parameter_is_an_input_of_slipways_models():
    found = {name: (kind, value) for name, kind, value in columns(REQUEST, OURS, stream=False)}

    assert found == {
        "text_input": ("BYTES", b"Hi?"),
        "max_tokens": ("INT32", 8),
        "temperature": ("FP32", 0.5),
        "seed": ("UINT64", 3),
        "stop_words": ("BYTES", (b"\n", b"END")),
        "bad_words": ("BYTES", (b"no",)),
        "top_p": ("FP32", 0.9),
        "top_k": ("INT32", 5),
        "min_tokens": ("INT32", 2),
        "presence_penalty": ("FP32", 0.5),
        "frequency_penalty": ("FP32", -0.5),
        "repetition_penalty": ("FP32", 1.5),
    }


def test_vllm_has_all_of_them_among_its_own_and_the_model_that_renders_its_prompt_those_it_needs():
    found = {name: value for name, _, value in columns(REQUEST, frozenset({"sampling_parameters"}), stream=False)}

    assert json.loads(found["sampling_parameters"]) == {**EVERY_PARAMETER, "max_tokens": 8}
    assert {name: value for name, _, value in prompt_columns(REQUEST)} == {
        "text_input": b"Hi?",
        "max_tokens": 8,
        "min_tokens": 2,
    }


@pytest.mark.parametrize(
    ("parameter", "input_"), [("stop", "stop_words"), ("top_k", "top_k"), ("bad_words", "bad_words")]
)
def test_a_model_that_lacks_one_is_not_asked_in_silence(parameter, input_):
    with refused(what=f"does not support {parameter}"):
        columns(REQUEST, OURS - {input_}, stream=False)


def test_a_question_without_any_is_sent_as_before():
    found = columns(request_of(SmokeQuestion(prompt="Hi?", answer="Hi", max_tokens=8)), OURS, stream=False)

    assert found == columns(GenerateRequest("Hi?", 8), OURS, stream=False)
    assert {name for name, _, _ in found} == {"text_input", "max_tokens", "temperature"}
