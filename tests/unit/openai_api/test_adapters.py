"""LoRA adapters as models: listed, found by name, and passed on to each kind of model."""

import json

import pytest

from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.serving.openai_api.generation.lora_models import ModelName, loras_of, with_lora
from tests.unit.openai_api.models import OURS, config_of
from tests.unit.openai_api.test_routes import CHAT, HELLO, Triton, exchange, exchanged

ADAPTED = {
    **config_of((*OURS, "lora_name")),
    "parameters": {"adapters": {"string_value": '{"terse": "lora/terse", "polite": "lora/polite"}'}},
}
NAMES = ["demo", "demo:polite", "demo:terse"]


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_read_as_it_is_written(text):
    assert str(ModelName.read(text)) == text


def test_a_configuration_without_the_parameter_has_no_adapters():
    assert loras_of(config_of()) == ()
    assert loras_of({**config_of(), "parameters": {"other": {"string_value": "x"}}}) == ()


def test_the_model_itself_is_asked_without_an_adapter():
    assert with_lora({"text_input": "x"}, None) == {"text_input": "x"}


def test_vllm_has_the_adapter_among_its_sampling_parameters():
    inputs = with_lora({"sampling_parameters": '{"seed": 3}'}, "terse")

    assert json.loads(inputs["sampling_parameters"]) == {"seed": 3, "lora_name": "terse"}


def test_the_list_of_models_has_adapters_with_their_model_as_parent():
    ((status, text),) = exchange(Triton(config=ADAPTED), ("GET", "/v1/models", b""))
    listed = json.loads(text)["data"]

    assert (status, [each["id"] for each in listed]) == (200, NAMES)
    assert [each.get("parent") for each in listed] == [None, "demo", "demo"]


def test_the_list_of_models_is_answered_before_triton_is():
    ((status, text),) = exchange(Triton(config=UnavailableError("starting")), ("GET", "/v1/models", b""))

    assert (status, [each["id"] for each in json.loads(text)["data"]]) == (200, ["demo"])


def test_an_adapter_answers_as_an_input_of_its_model():
    triton = Triton(HELLO, ADAPTED)
    ((_, text),) = exchange(triton, ("POST", "/v1/chat/completions", {**CHAT, "model": "demo:terse"}))
    ((model, inputs),) = triton.asked

    assert (model, inputs["lora_name"], json.loads(text)["model"]) == ("demo", "terse", "demo:terse")


@pytest.mark.parametrize("name", ["demo:rude", "demo:", "other:terse", ":terse"])
def test_an_adapter_that_does_not_exist_is_not_found(name):
    triton = Triton(HELLO, ADAPTED)
    ((status, text),) = exchange(triton, ("POST", "/v1/chat/completions", {**CHAT, "model": name}))

    assert (status, json.loads(text)["error"]["code"], triton.asked) == (404, "model_not_found", [])


def test_an_adapter_is_unavailable_as_long_as_triton_is():
    triton = Triton(HELLO, UnavailableError("starting"))
    ((status, _),) = exchange(triton, ("POST", "/v1/chat/completions", {**CHAT, "model": "demo:terse"}))

    assert status == 503


def test_adapters_of_a_live_model_are_answered_when_they_are_named_and_listed_when_the_pod_is_told(tmp_path):
    asked = ("GET", "/v1/models", b""), ("POST", "/v1/chat/completions", {**CHAT, "model": "demo:rude"})

    def told(names, listed):
        (tmp_path / "adapters.json").write_text(json.dumps({"labels": {}, "names": names, "listed": listed}))
        (_, models, _), (status, _, _) = exchanged(Triton(HELLO, ADAPTED), *asked, adapters=tmp_path)
        return [each["id"] for each in json.loads(models)["data"]], status

    assert told([], []) == (NAMES, 404)
    assert told(["rude"], []) == (NAMES, 200)
    assert told(["rude"], ["rude"]) == (["demo", "demo:polite", "demo:rude", "demo:terse"], 200)
