"""Lines of a quality dataset as questions, with what the spec sets for all of them."""

import pytest

from slipway.tasks.contracts.stored.plan import DatasetFile, HubFile
from slipway.tasks.steps.smoke_test import quality_questions
from tests.fakes.documents.step_workspace import StepWorkspace
from tests.fakes.releases import SPEC, release
from tests.support.refused import refused

DATASET = "hf://datasets/org/questions@main/a.jsonl"


@pytest.fixture
def questions(tmp_path):
    def read(*lines, engine=None, **quality):
        gate = {**SPEC["gate"], "quality": {"dataset": DATASET, **quality}}
        made = release(gate=gate, **({"engine": engine, "quantization": {"format": "none"}} if engine else {}))
        pinned = made.plan.datasets.model_copy(update={"quality": pinned_file()})
        made = made.model_copy(update={"plan": made.plan.model_copy(update={"datasets": pinned})})
        return quality_questions(made, StepWorkspace(tmp_path, datasets={"a.jsonl": list(lines)}).datasets)

    return read


def pinned_file():
    file = HubFile(path="a.jsonl", size_bytes=1, digest=f"sha256:{'0' * 64}")
    return DatasetFile(repo="org/questions", commit="a" * 40, file=file)


def test_a_line_overrides_what_the_spec_sets_for_every_question(questions):
    line = {"prompt": "Hi?", "answer": "Hi"}
    own = {**line, "temperature": 1, "seed": 4, "stop": ["\n"], "max_tokens": 9, "chat_template_kwargs": {"b": 2}}
    first, second = questions(line, own, temperature=0.5, seed=3, top_k=5, max_tokens=7, chat_template_kwargs={"a": 1})

    assert first.requested() == {"temperature": 0.5, "seed": 3, "top_k": 5}
    assert (first.max_tokens, first.chat_template_kwargs) == (7, {"a": 1})
    assert second.requested() == {"temperature": 1, "seed": 4, "top_k": 5, "stop": ["\n"]}
    assert (second.max_tokens, second.chat_template_kwargs) == (9, {"a": 1, "b": 2})


def test_fields_that_are_none_of_a_question_are_ignored(questions):
    (question,) = questions({"prompt": "Hi?", "answer": "Hi", "category": "greeting", "lora": "polite"})

    assert (question.lora, question.requested()) == (None, {})


def test_a_line_is_matched_as_it_says_or_as_the_spec_says_for_every_line(questions):
    line = {"prompt": "Hi?", "answer": "Hi"}
    lines = [line, {**line, "match": "contains"}, {**line, "min_similarity": 0.8}]

    inherited, other, closer = questions(*lines, match="fuzzy", min_similarity=0.7)

    assert (inherited.match, inherited.min_similarity) == ("fuzzy", 0.7)
    assert (other.match, other.min_similarity) == ("contains", None)
    assert (closer.match, closer.min_similarity) == ("fuzzy", 0.8)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ({"answer": "Hi"}, "prompt: is required"),
        ({"prompt": "Hi?"}, "answer: is required"),
        ({"prompt": "Hi?", "answer": "(", "match": "regex"}, "is not a usable regular expression"),
        ({"prompt": "Hi?", "answer": "Hi", "min_similarity": 0.9}, "min_similarity is for match: fuzzy"),
        ({"prompt": "Hi?", "answer": "Hi", "temperature": -1}, "temperature: must be at least"),
        ({"prompt": "Hi?", "answer": "Hi", "bad_words": ["no"]}, "openvino does not obey bad_words"),
        ({"prompt": "Hi?", "answer": "Hi", "chat_template_kwargs": {"messages": 1}}, "messages is not free"),
    ],
)
def test_a_line_that_is_wrong_is_named_with_what_is_wrong(questions, line, found):
    with refused(what="line 2 of quality dataset", found=found):
        questions({"prompt": "Hi?", "answer": "Hi"}, line)
