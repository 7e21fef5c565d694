"""A question with messages before it, as the inputs of a model."""

import json

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest, columns, prompt_columns, rendered
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.contracts.wire.prompt_model import Prompt
from slipway.tasks.serving.rendered.questions import request_of

OURS = frozenset({"text_input", "max_tokens", "stream", "temperature", "seed", "messages"})
SYSTEM = {"role": "system", "content": "Be brief."}


def inputs(request, names=OURS):
    return {name: value for name, _, value in columns(request, names, stream=False)}


def test_a_question_with_a_history_is_a_conversation():
    question = SmokeQuestion(prompt="Hi?", answer="Hi", max_tokens=8, history=[SYSTEM])
    found = inputs(request_of(question))

    assert json.loads(found["messages"]) == [SYSTEM, {"role": "user", "content": "Hi?"}]
    assert found["text_input"] == b""


def test_a_question_without_one_is_sent_as_before():
    found = inputs(GenerateRequest("Hi?", 8))

    assert (found["text_input"], "messages" in found) == (b"Hi?", False)


def test_the_model_that_renders_prompts_gets_the_conversation_and_vllm_its_prompt():
    request = GenerateRequest("Hi?", 8, seed=3, lora="polite", history=(SYSTEM,), chat_template_kwargs={"a": 1})
    found = {name: value for name, _, value in prompt_columns(request)}
    sent = inputs(rendered(request, Prompt("<|user|>Hi?", 5, 8)), frozenset({"text_input", "sampling_parameters"}))

    assert json.loads(found.pop("messages")) == [SYSTEM, {"role": "user", "content": "Hi?"}]
    assert found == {"text_input": b"", "max_tokens": 8, "chat_template_kwargs": b'{"a": 1}'}
    assert sent.pop("text_input") == b"<|user|>Hi?"
    assert json.loads(sent.pop("sampling_parameters")) == {
        "max_tokens": 8,
        "temperature": 0,
        "seed": 3,
        "lora_name": "polite",
    }
    assert sent == {}


def test_a_model_that_takes_prompts_only_gets_no_conversation():
    for names in (OURS - {"messages"}, frozenset({"text_input", "sampling_parameters"})):
        with pytest.raises(InputError, match="takes prompts only"):
            inputs(GenerateRequest("Hi?", 8, history=(SYSTEM,)), names)


def test_a_seed_reaches_a_model_that_takes_one_and_any_model_at_a_temperature():
    without = OURS - {"seed"}

    assert inputs(GenerateRequest("Hi?", 8, seed=3))["seed"] == 3
    assert "seed" not in inputs(GenerateRequest("Hi?", 8, seed=3), without)
    assert inputs(GenerateRequest("Hi?", 8, seed=3, temperature=0.5), without)["seed"] == 3
