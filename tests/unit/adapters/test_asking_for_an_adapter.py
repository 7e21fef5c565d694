"""A request that names an adapter, as each kind of model takes it."""

import json

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest, columns
from slipway.tasks.contracts.errors import InputError

VLLM = frozenset({"text_input", "stream", "sampling_parameters", "exclude_input_in_output", "return_finish_reason"})
OURS = frozenset({"text_input", "max_tokens", "stream", "temperature", "seed"})
ENSEMBLE = OURS - {"stream"}
OURS_WITH_ADAPTERS = OURS | {"lora_name"}


def sampling(request):
    found = {name: value for name, _, value in columns(request, VLLM, stream=False)}
    return json.loads(found["sampling_parameters"])


def test_vllm_is_told_the_adapter_among_its_sampling_parameters():
    asked = sampling(GenerateRequest("Hi?", 8, lora="polite"))

    assert asked == {"max_tokens": 8, "temperature": 0.0, "lora_name": "polite"}


@pytest.mark.parametrize("lora", ["polite", None])
def test_our_own_models_are_told_the_adapter_by_an_input_of_its_own(lora):
    asked = columns(GenerateRequest("Hi?", 8, lora=lora), OURS_WITH_ADAPTERS, stream=True)

    assert [column for column in asked if column[0] == "lora_name"] == (
        [("lora_name", "BYTES", b"polite")] if lora else []
    )


def test_without_an_adapter_the_model_itself_is_asked():
    assert "lora_name" not in sampling(GenerateRequest("Hi?", 8))


@pytest.mark.parametrize("taken", [OURS, ENSEMBLE])
def test_a_model_that_has_no_adapters_is_not_asked_in_silence(taken):
    with pytest.raises(InputError) as caught:
        columns(GenerateRequest("Hi?", 8, lora="polite"), taken, stream=True)

    assert "adapter polite" in caught.value.what
    assert caught.value.expected == "a model that was released with adapters (engine.lora)"
    assert columns(GenerateRequest("Hi?", 8), taken, stream=True)
