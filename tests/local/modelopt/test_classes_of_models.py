"""The record of what AutoModelForCausalLM loads is that of the versions themselves."""

import json

import pytest

from tests.contracts.recorded import contract
from tests.local.modelopt.runs import interpreter, run_in

RECORD = contract("causal_models.yaml")


@pytest.mark.parametrize(
    ("environment", "version"),
    [("transformers4", RECORD["versions"]["quantize.py"]), ("modelopt", RECORD["versions"]["modelopt"])],
)
def test_each_model_type_is_loaded_by_the_class_that_is_recorded(environment, version):
    found = json.loads(run_in(interpreter(environment), "causal_class.py", *RECORD["classes"]))

    assert found == {"version": version, "classes": RECORD["classes"]}
