"""Adapters of a release as config.pbtxt names them, and requests that choose one."""

from pathlib import Path

import pytest
from generation.requests.adapters import Adapter, chosen, read_adapters
from generation.requests.question import Question, RefusedError, job
from generation.settings import Limits, SettingsError

ENGINE = Path("/models/demo/1/engine")
PARAMETERS = {"adapters": '{"terse": "lora/terse", "polite": "lora/polite"}'}
POLITE = Adapter("polite", 1, ENGINE / "lora/polite")
TERSE = Adapter("terse", 2, ENGINE / "lora/terse")


def test_adapters_are_numbered_by_name_and_lie_below_the_engine():
    assert read_adapters(PARAMETERS, ENGINE) == {"polite": POLITE, "terse": TERSE}


def test_a_release_without_the_parameter_has_no_adapters():
    assert read_adapters({}, ENGINE) == {}


@pytest.mark.parametrize("value", ["polite", "[1]"])
def test_a_wrong_parameter_keeps_the_model_from_loading(value):
    with pytest.raises(SettingsError, match="adapters"):
        read_adapters({"adapters": value}, ENGINE)


@pytest.mark.parametrize(("name", "adapter"), [("terse", TERSE), (None, None)])
def test_a_name_chooses_its_adapter_and_no_name_the_model(name, adapter):
    assert chosen(name, {"polite": POLITE, "terse": TERSE}) == adapter


@pytest.mark.parametrize(("name", "known"), [("rude", "polite, terse"), ("", "polite, terse"), ("x" * 999, "polite")])
def test_a_name_that_no_adapter_has_is_refused_with_the_names_that_there_are(name, known):
    with pytest.raises(RefusedError, match=f"this release has {known}") as caught:
        chosen(name, {"polite": POLITE, "terse": TERSE})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("name", "adapter"), [("terse", "terse"), (None, "")])
def test_the_engine_is_told_which_adapter_answers(name, adapter):
    made = job(Question("Hi?", lora_name=name), (1, 2), Limits(8, 16, 4))

    assert made.sampling.adapter == adapter
