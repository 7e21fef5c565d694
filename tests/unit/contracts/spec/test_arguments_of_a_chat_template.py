"""engine.chat_template_kwargs and those of questions: what a spec may say, and which artifacts they change."""

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.stored.plan import Datasets, Source, Tools, stage_fields, stage_keys
from tests.fakes.releases import SPEC, spec

HISTORY = [{"role": "system", "content": "Be brief."}]
OFF = {"enable_thinking": False}
SOURCE = Source(repo="org/model", revision="main", commit="c" * 40, files=())
TOOLS = Tools(producers={}, templates={})
QUALITY = {"dataset": "hf://datasets/org/questions@main/a.jsonl"}


def engine(**changes):
    return {**SPEC["engine"], **changes}


def gate(smoke=None, quality=None):
    question = {**SPEC["gate"]["smoke"][0], **(smoke or {})}
    return {**SPEC["gate"], "smoke": [question], **({"quality": {**QUALITY, **quality}} if quality else {})}


def keys(**changes):
    return stage_keys(stage_fields(spec(**changes), SOURCE, Datasets(), TOOLS))


def test_arguments_change_the_repository_and_nothing_before_it():
    plain, wrapped = keys(), keys(engine=engine(chat_template_kwargs=OFF))

    assert {stage for stage in plain if plain[stage] != wrapped[stage]} == {"assemble", "publish"}


def test_a_spec_without_arguments_has_no_field_for_them():
    """Keys of releases that exist stay as they are."""
    fields = stage_fields(spec(engine=engine(chat_template_kwargs={})), SOURCE, Datasets(), TOOLS)

    assert "chat_template_kwargs" not in repr(fields)


def test_questions_have_arguments_of_their_own_that_change_no_artifact():
    asked = gate({"chat_template_kwargs": OFF}, {"chat_template_kwargs": OFF})

    assert spec(gate=asked).gate.smoke[0].chat_template_kwargs == OFF
    assert keys(gate=asked) == keys(gate=gate(quality={"max_tokens": 3}))


@pytest.mark.parametrize("value", [True, 7, 0.5, "low"])
def test_values_keep_their_type(value):
    found = spec(engine=engine(chat_template_kwargs={"effort": value})).engine.chat_template_kwargs["effort"]

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"messages": "x"}, "messages is not free"),
        ({"a-b": "x"}, "pattern"),
        ({"a" * 65: 1}, "at most 64"),
        ({"a": "x" * 1001}, "at most 1000"),
        ({"a": float("nan")}, "finite"),
        ({"a": [1]}, "valid"),
        ({f"a{number}": 1 for number in range(21)}, "at most 20"),
    ],
)
def test_arguments_that_no_template_should_get_are_refused(arguments, message):
    with pytest.raises(ValidationError, match=message):
        spec(engine=engine(chat_template_kwargs=arguments))


RAW = {"engine": engine(options={"chat_template": "none"})}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({**RAW, "gate": gate({"chat_template_kwargs": OFF})}, "gate.smoke: chat_template_kwargs has no effect"),
        ({**RAW, "gate": gate({"history": HISTORY})}, "gate.smoke: history has no effect"),
        ({**RAW, "gate": gate(quality={"chat_template_kwargs": OFF})}, "gate.quality.chat_template_kwargs has no"),
        (
            {"engine": engine(chat_template_kwargs=OFF, options={"chat_template": "none"})},
            "engine.options.chat_template none",
        ),
    ],
)
def test_arguments_without_a_template_to_give_them_to_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        spec(**changes)
