"""Questions of a gate to a model that thinks before it answers: room for thoughts, and warnings without it."""

import json

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest, columns
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.engines.preflight import chat
from slipway.tasks.serving.rendered.questions import request_of, timeout_s, with_tokens
from tests.fakes.releases import SPEC, release, spec
from tests.support.refused import refused

QWEN3 = "{{ messages[0].content }}{% if enable_thinking is defined %}<think>{% endif %}"
HARMONY = "{{ messages[0].content }}<|start|>assistant<|channel|>"
PLAIN = "{{ messages[0].content }}"
OFF = {"enable_thinking": False}
OURS = frozenset({"text_input", "max_tokens", "stream", "temperature", "seed", "chat_template_kwargs"})
VLLM = frozenset({"text_input", "stream", "sampling_parameters"})


def documents(template):
    return {"tokenizer_config.json": {"chat_template": template}}


def asked(kind="llmapi", smoke=None, quality=None, benchmark=None, **engine):
    sizes = {"max_input_tokens": 1024, "max_sequence_tokens": 8192}
    sections = {"smoke": [{**SPEC["gate"]["smoke"][0], **(smoke or {})}], "benchmark": benchmark or {}}
    if quality is not None:
        sections["quality"] = {"dataset": "hf://datasets/org/questions@main/a.jsonl", **quality}
    return spec(
        quantization={"format": "none"},
        engine={**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-L4", **sizes, **engine},
        gate={**SPEC["gate"], **sections},
    )


def limit(max_tokens=None, *, thinks=True, room=7168):
    made = release(engine={**SPEC["engine"], "max_input_tokens": 8, "max_sequence_tokens": 8 + room})
    made = made.model_copy(update={"plan": made.plan.model_copy(update={"thinks": thinks})})
    return with_tokens(SmokeQuestion(prompt="?", answer="!", max_tokens=max_tokens), made).max_tokens


def test_an_answer_has_room_for_thoughts_where_the_template_mentions_them():
    assert (limit(thinks=False), limit(thinks=True)) == (32, 2048)


def test_the_room_is_what_the_engine_has_behind_the_longest_prompt_and_never_less_than_for_others():
    assert (limit(room=600), limit(room=4)) == (600, 32)


@pytest.mark.parametrize("thinks", [True, False])
def test_a_limit_that_a_question_sets_stays(thinks):
    assert limit(7, thinks=thinks) == 7


def test_a_long_answer_gets_more_time():
    assert timeout_s(GenerateRequest("?", 32)) == 60
    assert timeout_s(GenerateRequest("?", 4096)) > 400


def test_a_questions_arguments_reach_the_server():
    request = request_of(SmokeQuestion(prompt="?", answer="!", chat_template_kwargs=OFF))
    sent = {name: value for name, _, value in columns(request, OURS, stream=False)}

    assert json.loads(sent["chat_template_kwargs"]) == OFF
    assert "chat_template_kwargs" not in {name for name, _, _ in columns(GenerateRequest("?", 8), OURS, stream=False)}


@pytest.mark.parametrize("taken", [VLLM, OURS - {"chat_template_kwargs"}])
def test_a_model_that_takes_no_arguments_is_not_asked_with_some_in_silence(taken):
    with refused(found="enable_thinking", remedy="release the model again"):
        columns(GenerateRequest("?", 8, chat_template_kwargs=OFF), taken, stream=False)


@pytest.mark.parametrize("match", ["exact", "contains", "regex"])
def test_the_answer_is_what_follows_the_thoughts(match):
    question = SmokeQuestion(prompt="?", answer="Four", match=match)

    assert question.accepts("<think>Three? No.</think>\n\nFour")
    assert question.accepts("Three? No.</think>Four")
    assert not question.accepts("<think>Four</think>\n\nThree")
    assert not question.model_copy(update={"match": "contains"}).accepts("<think>Is it Four? Let me")


@pytest.mark.parametrize(("template", "thinks"), [(QWEN3, True), (HARMONY, True), (PLAIN, False), (None, False)])
def test_plan_reads_from_the_template_whether_a_model_thinks(template, thinks):
    assert chat.thinks(documents(template)) is thinks


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"smoke": {"max_tokens": 64}}, ["gate.smoke", "64 tokens"]),
        ({"quality": {"max_tokens": 64}}, ["gate.quality", "64 tokens"]),
        ({"max_sequence_tokens": 1124}, ["gate.smoke", "100 tokens"]),
        ({"smoke": {"max_tokens": 64}, "kind": "vllm"}, ["gate.smoke", "engine.chat_template_kwargs"]),
    ],
)
def test_plan_warns_of_answers_that_would_end_within_the_thoughts(changes, words):
    (warning,) = chat.warnings(asked(**changes), documents(QWEN3))

    assert all(word in warning for word in words)
    assert chat.warnings(asked(**changes), documents(PLAIN)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"smoke": {"max_tokens": 512}},
        {"smoke": {"max_tokens": 64, "chat_template_kwargs": OFF}},
        {"smoke": {"max_tokens": 64}, "quality": {"max_tokens": 64}, "chat_template_kwargs": OFF},
    ],
)
def test_plan_does_not_warn_where_there_is_room_or_no_thinking(changes):
    assert chat.warnings(asked(**changes), documents(QWEN3)) == []


def test_plan_warns_of_a_kind_that_returns_channels_as_one_text():
    (warning,) = chat.warnings(asked("trt-engine"), documents(HARMONY))

    assert "Only the final channel is returned by openvino, llmapi, vllm." in warning


MARKED = "{% for message in messages %}[INST] {{ message.content }} [/INST]{% endfor %}"


@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_plan_warns_of_prompts_that_the_chat_template_would_wrap_twice(kind):
    prompt = {"prompt": "[INST] Who? [/INST]"}
    (warning,) = chat.warnings(asked(kind, smoke=prompt), documents(MARKED))

    assert "[INST]" in warning
    assert chat.warnings(asked(kind, smoke=prompt, options={"chat_template": "none"}), documents(MARKED)) == []
    assert chat.warnings(asked(kind, smoke=prompt), documents(PLAIN)) == []
    assert chat.warnings(asked(kind), documents(MARKED)) == []


@pytest.mark.parametrize("template", [HARMONY, QWEN3])
def test_a_load_test_may_end_within_the_thoughts(template):
    """It counts them, so that no answer of it is empty."""
    assert chat.warnings(asked(benchmark={"max_tokens": 32}), documents(template)) == []
