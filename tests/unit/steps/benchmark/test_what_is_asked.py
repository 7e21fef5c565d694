"""The requests of a load test: of smoke questions, of a dataset, or made up at the lengths of a distribution."""

import json
import random
import statistics

import pytest

from slipway.tasks.adapters.load.load_prompts import load_requests
from slipway.tasks.adapters.triton.tokens import TokenCounter
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.gate import LoadPrompts
from tests.fakes.releases import SPEC, release

WORDS = ["snow", "rain", "hail"]
DATASET = "hf://datasets/a/b@main/prompts.jsonl"


def counter(words=WORDS):
    """A tokenizer of whole words, which are written with SentencePiece's mark."""
    space = "\N{LOWER ONE EIGHTH BLOCK}"
    vocabulary = {"<unk>": 0, **{f"{space}{word}": number for number, word in enumerate(words, 1)}}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    marks = {"type": "Metaspace", "replacement": space, "prepend_scheme": "always", "split": True}
    return TokenCounter(json.dumps({"version": "1.0", "model": model, "pre_tokenizer": marks}).encode())


def asked(prompts, lines=None, words=WORDS, **engine):
    benchmark = {"max_tokens": 9, "prompts": prompts}
    spec = release(gate={**SPEC["gate"], "benchmark": benchmark}, engine={**SPEC["engine"], **engine}).spec
    return load_requests(spec, lines, counter(words))


def test_questions_of_the_gate_are_asked_where_nothing_else_is_said():
    smoke = [question["prompt"] for question in SPEC["gate"]["smoke"]]

    assert [(each.prompt, each.max_tokens) for each in asked(None)] == [(prompt, 9) for prompt in smoke]
    assert [each.prompt for each in asked(None, [{"prompt": "of quality", "answer": "a"}])] == ["of quality"]


def test_each_line_of_a_dataset_is_a_request():
    requests = asked({"dataset": DATASET}, [{"prompt": "short"}, {"prompt": "long", "max_tokens": 200}])

    assert [(each.prompt, each.max_tokens) for each in requests] == [("short", 9), ("long", 200)]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], "is empty"),
        ([{"prompt": "a"}, {"text": "b"}], "line 2 .* prompt None"),
        ([{"prompt": ""}], "line 1 .* prompt ''"),
        ([{"prompt": "a", "max_tokens": 0}], "line 1 .* max_tokens 0"),
        ([{"prompt": "a", "max_tokens": True}], "line 1 .* max_tokens True"),
    ],
)
def test_a_dataset_that_cannot_be_asked_is_refused_by_its_line(lines, found):
    with pytest.raises(InputError, match=f"(?s){found}"):
        asked({"dataset": DATASET}, lines)


def test_made_up_prompts_have_the_lengths_of_the_distribution_in_tokens_of_the_model():
    requests = asked({"input_tokens": 100, "input_tokens_stddev": 20}, max_input_tokens=512, max_sequence_tokens=1024)
    lengths = [counter().count(each.prompt) for each in requests]

    assert statistics.mean(lengths) == pytest.approx(100, abs=3)
    assert statistics.stdev(lengths) == pytest.approx(20, abs=2)
    assert len({each.prompt for each in requests}) == len(requests)
    assert requests == asked(
        {"input_tokens": 100, "input_tokens_stddev": 20}, max_input_tokens=512, max_sequence_tokens=1024
    )


def test_made_up_prompts_leave_room_for_a_chat_template():
    requests = asked({"input_tokens": 500, "input_tokens_stddev": 50}, max_input_tokens=512, max_sequence_tokens=1024)

    assert max(counter().count(each.prompt) for each in requests) == 512 - 64


def test_answers_have_the_lengths_of_the_distribution_exactly_where_the_engine_obeys():
    lengths = {"output_tokens": 50, "output_tokens_stddev": 10}
    requests = asked({"dataset": DATASET, **lengths}, [{"prompt": str(number)} for number in range(400)])

    assert statistics.mean(each.max_tokens for each in requests) == pytest.approx(50, abs=2)
    assert all(each.sampling == {"min_tokens": each.max_tokens} for each in requests)


def test_a_tokenizer_without_words_cannot_make_prompts_up():
    with pytest.raises(InputError, match="no words to make prompts of"):
        counter(["12", "ab cd"]).made_up([1], random.Random(1))  # noqa: S311 - no secret


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ({"input_tokens": 129}, "input_tokens 129 is above engine.max_input_tokens, 128"),
        (
            {"input_tokens": 9, "output_tokens": 129},
            "output_tokens 129 is above the engine's room for an answer .* 128",
        ),
    ],
)
def test_lengths_that_the_engine_has_no_room_for_are_refused(prompts, message):
    with pytest.raises(ValueError, match=message):
        asked(prompts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "exactly one of dataset and input_tokens"),
        ({"dataset": DATASET, "input_tokens": 5}, "exactly one of dataset and input_tokens"),
        ({"dataset": DATASET, "input_tokens_stddev": 5}, "input_tokens_stddev needs input_tokens"),
        ({"dataset": DATASET, "output_tokens_stddev": 5}, "output_tokens_stddev needs output_tokens"),
    ],
)
def test_prompts_that_contradict_themselves_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LoadPrompts(**settings)
