"""The record of what AutoModelForCausalLM loads is that of the versions themselves."""

from tests.contracts.recorded import contract

RECORD = contract("causal_models.yaml")
SAID_OF = {"transformers4": "quantize.py", "modelopt": "modelopt"}


def test_each_model_type_is_loaded_by_the_class_that_is_recorded(environment, known):
    assert known["version"] == RECORD["versions"][SAID_OF[environment]]
    assert known["classes"] == RECORD["classes"]
