"""The demo model in ModelOpt's formats and what it refuses, made in one process of ModelOpt's own environment."""

import json
import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.fixtures.odd_checkpoints import write_checkpoint
from tests.local.modelopt.runs import (
    AWQ_TEXTS,
    CACHE_TEXTS,
    CHECKPOINT,
    MADE,
    ODD,
    ODD_TEXTS,
    interpreter,
    quantized,
)

FURTHER = {
    "fp8 again": {"format": "fp8", "measure": False},
    "int8_sq again": {"format": "int8_sq", "measure": False},
    "fp8 with its cache": {"format": "fp8", "kv_cache": "fp8", "measure": False},
    "int4_awq with its cache": {"format": "int4_awq", "kv_cache": "fp8", "texts": CACHE_TEXTS, "measure": False},
    "nvfp4": {"format": "nvfp4"},
}


@pytest.fixture(scope="session")
def modelopt_python():
    """The interpreter of the environment; SLIPWAY_MODELOPT_PYTHON names another one."""
    return Path(os.environ.get("SLIPWAY_MODELOPT_PYTHON") or interpreter("modelopt"))


def without_numbers(folder):
    """The checkpoint with one tensor of NaNs."""
    nan = shutil.copytree(CHECKPOINT, folder)
    tensors = load_file(nan / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"].fill_(float("nan"))
    save_file(tensors, nan / "model.safetensors", metadata={"format": "pt"})
    return nan


def of_no_architecture(folder):
    """The checkpoint of a model that nobody knows."""
    foreign = shutil.copytree(CHECKPOINT, folder)
    (foreign / "config.json").write_text(json.dumps({"model_type": "none-such", "architectures": ["NoneSuch"]}))
    return foreign


@pytest.fixture(scope="session")
def results(modelopt_python, tmp_path_factory):
    """What came of each run, by its name. A process with ModelOpt takes longer to start than to quantize this model."""
    folder = tmp_path_factory.mktemp("modelopt")
    refused = {
        "twice": {"format": "int8_sq"},
        "no architecture": {"format": "fp8", "checkpoint": str(of_no_architecture(folder / "foreign"))},
        "no numbers": {"format": "fp8", "checkpoint": str(without_numbers(folder / "nan")), "measure": False},
    }
    return quantized(modelopt_python, folder, {**MADE, **FURTHER, **refused})


@pytest.fixture(scope="session")
def odd_results(modelopt_python, tmp_path_factory):
    """What came of checkpoints in which no setting has its default, by model, form of their config.json, and format."""
    folder = tmp_path_factory.mktemp("odd")
    runs = {}
    for model, form, format_ in ODD:
        source = folder / f"{model} {form}"
        if not source.exists():
            write_checkpoint(source, model, form)
        runs[model, form, format_] = {
            "format": format_,
            "checkpoint": str(source),
            "texts": AWQ_TEXTS,
            "measured": ODD_TEXTS,
        }
    return quantized(modelopt_python, folder, runs)
