"""Checkpoints of families, and a release of each from plan to an answer."""

import sys

import pytest

from tests.fixtures import family_checkpoints
from tests.local.engines.demo_model import tritonserver, tritonserver_on_path
from tests.support.made_once import models_traced_once, tokenizers_converted_once
from tests.unit.serving.served_modules import OPENVINO

sys.path.insert(0, str(OPENVINO))  # as Triton's stub finds the model's own modules

__all__ = ["models_traced_once", "tokenizers_converted_once", "tritonserver", "tritonserver_on_path"]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """By model type: a folder in Hugging Face layout."""
    root, made = tmp_path_factory.mktemp("checkpoints"), {}

    def of(model_type):
        if model_type not in made:
            made[model_type] = family_checkpoints.write_checkpoint(model_type, root / model_type)
        return made[model_type]

    return of
