"""From a request's inputs to what controls the choice of tokens, and what each engine is told of it."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from generation.answers.logprobs import logprobs_document
from generation.json_schema import grammar_of
from generation.model_files.tool_calls import check_tools, format_of
from generation.requests.question import Question, RefusedError, check, job
from generation.requests.sampling import read_controls
from generation.runtime import Controls, TokenLogprob
from generation.settings import Limits
from openvino_genai import GenerationConfig
from openvino_runtime import OpenVinoRuntime

from tests.fakes.servers.generation_runtime import ByteTokenizer


def test_without_inputs_nothing_is_controlled():
    assert read_controls({"top_p": None, "logprobs": False}) == Controls()


def test_inputs_become_controls():
    values = {"top_p": 0.5, "top_k": 3, "min_tokens": 2, "presence_penalty": -2.0, "logprobs": True, "top_logprobs": 4}
    found = read_controls(values, ("no",), ('{"type": "null"}',))

    assert found == Controls(0.5, 3, 2, -2.0, bad_words=("no",), logprobs=4, grammar=grammar_of('{"type": "null"}'))
    assert read_controls({"logprobs": True}).logprobs == 0


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": float("nan")}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-38}, "repetition_penalty"),
        ({"repetition_penalty": 1e38}, "repetition_penalty"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_name(values, name):
    with pytest.raises(RefusedError, match=f"^{name} "):
        read_controls(values)


def test_biases_are_numbers_by_token():
    assert read_controls({}, logit_bias=('{"7": -100, "12": 0.5}',)).logit_bias == ((7, -100.0), (12, 0.5))


@pytest.mark.parametrize(
    "text",
    [
        '{"' + "1" * 5000 + '": 1}',
        "[]",
        "{",
        '{"a": 1}',
        '{"-1": 1}',
        '{"1": 101}',
        '{"1": true}',
        '{"1": null}',
        json.dumps(dict.fromkeys(range(1025), 1)),
    ],
)
def test_biases_that_no_engine_could_obey_are_refused(text):
    with pytest.raises(RefusedError, match=r"^logit_bias "):
        read_controls({}, logit_bias=(text,))


@pytest.mark.parametrize("words", [("",), ("x",) * 65])
def test_bad_words_are_bounded(words):
    with pytest.raises(RefusedError, match="bad_words"):
        read_controls({}, words)


def test_a_schema_that_cannot_be_enforced_is_refused():
    with pytest.raises(RefusedError, match=r"json_schema: .*zebra"):
        read_controls({}, (), ('{"type": "zebra"}',))


def preparers():
    """The processes that prepare requests for this one."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # others end meanwhile
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and b"request_program" in (process / "cmdline").read_bytes():
                yield int(process.name)


def test_a_schema_that_ends_its_process_is_refused_and_the_next_one_is_translated():
    read_controls({}, (), ('{"type": "null"}',))
    for process in preparers():
        os.kill(process, signal.SIGKILL)
    with pytest.raises(RefusedError, match=r"^json_schema: its translation ended the process"):
        read_controls({}, (), ('{"type": "boolean"}',))

    assert read_controls({}, (), ('{"type": "boolean"}',)).grammar == grammar_of('{"type": "boolean"}')


def test_an_answer_cannot_have_more_tokens_than_it_has_room_for():
    question = Question("Hi?", max_tokens=3, controls=Controls(min_tokens=4))

    with pytest.raises(RefusedError, match="min_tokens is 4; the answer has at most 3"):
        job(question, (1,), Limits(8, 16, 4))


def test_tools_need_a_conversation():
    with pytest.raises(RefusedError, match="tools need messages"):
        check(Question("Hi?", tools=({"type": "function"},)), Limits(100, 200, 9), 16)


def test_a_part_of_a_character_has_no_bytes_and_no_probability_is_written_as_a_number():
    first, _ = "é".encode()
    entries = [TokenLogprob(ord("a"), -0.5, ((ord("b"), -1.0),)), TokenLogprob(first, float("-inf"))]
    found = json.loads(logprobs_document(entries, ByteTokenizer()))

    assert found[0] == {
        "token": "a",
        "logprob": -0.5,
        "bytes": [97],
        "top_logprobs": [{"token": "b", "logprob": -1.0, "bytes": [98]}],
    }
    assert (found[1]["bytes"], found[1]["logprob"]) == (None, -9999.0)


@pytest.mark.parametrize("text", ["aéz", "é", "😀é", "a😀", "\ufffd"])
def test_bytes_of_tokens_that_make_up_a_character_are_those_of_the_text(text):
    entries = [TokenLogprob(token, -0.5) for token in text.encode()]
    found = json.loads(logprobs_document(entries, ByteTokenizer()))

    if text == "\ufffd":  # what a decoder shows for a part cannot be told from it
        assert [each["bytes"] for each in found] == [None] * 3
    else:
        assert bytes(byte for each in found for byte in each["bytes"]).decode() == text


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("{% if tools %}<tool_call>{% endif %}", "hermes"),
        ("{% if tools %}[TOOL_CALLS]{% endif %}", "mistral"),
        ("{% if tools %}<|python_tag|>{% endif %}", "llama3_json"),
        ("{% if tools %}<tool_call><function=x>{% endif %}", ""),
        ("{{ messages }}", ""),
    ],
)
def test_the_chat_template_shows_how_calls_are_written(template, found):
    assert format_of(template) == found


def test_a_template_without_a_word_of_tools_takes_none():
    check_tools("{{ tools }}", [{"role": "user"}], [{}])
    with pytest.raises(RefusedError, match="ignores tools"):
        check_tools("{{ toolset }}", [{"role": "user"}], [{}])
    with pytest.raises(RefusedError, match="ignores tool_calls"):
        check_tools("{{ tools }}", [{"role": "assistant", "tool_calls": [{}]}], [])


class Pipeline:
    """openvino_genai.ContinuousBatchingPipeline as far as its vocabulary of ten tokens."""

    def get_tokenizer(self):
        return self

    end = 5

    def get_vocab(self):
        return {str(token): token for token in range(10)}

    def get_eos_token_id(self):
        return self.end

    def get_config(self):
        config = GenerationConfig()
        config.set_eos_token_id(3)
        return config


@pytest.mark.parametrize(("end", "ends"), [(5, {3, 5}), (3, {3}), (-1, {3})])
def test_openvino_ends_with_the_tokenizers_own_end_too(end, ends):
    pipeline = Pipeline()
    pipeline.end = end

    config = OpenVinoRuntime(pipeline)._ended_as_the_model_says()

    assert (config.eos_token_id, config.stop_token_ids) == (3, ends)


@pytest.mark.parametrize("samples", [False, True])
def test_openvino_is_told_what_it_obeys(samples):
    config = GenerationConfig()
    config.do_sample, config.stop_token_ids = samples, {4, 10, 12}
    before = config.top_p, config.top_k, config.min_p
    config.set_eos_token_id(12)
    OpenVinoRuntime(Pipeline())._control(config, Controls(0.5, 3, 2, 0.25, 0.75, 1.5, logprobs=0, min_p=0.125))

    assert (config.min_new_tokens, config.presence_penalty, config.frequency_penalty) == (2, 0.25, 0.75)
    assert (config.repetition_penalty, config.logprobs) == (1.5, 1)
    assert (config.top_p, config.top_k, config.min_p) == ((0.5, 3, 0.125) if samples else before)
    assert (config.eos_token_id, config.stop_token_ids) == (4, {4})
