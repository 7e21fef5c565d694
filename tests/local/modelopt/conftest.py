"""Checkpoints in ModelOpt's formats and what it refuses, made in one process of its environment, and what versions of
transformers read, each in one process of its own."""

import json
import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.contracts.recorded import contract
from tests.fixtures.odd_checkpoints import FORMS, THETA, write_checkpoint
from tests.local.modelopt.configurations import CONFIGURATIONS
from tests.local.modelopt.runs import (
    AWQ_TEXTS,
    CACHE_TEXTS,
    CHECKPOINT,
    DROPPED,
    MADE,
    ODD,
    ODD_TEXTS,
    VERSIONS,
    interpreter,
    quantized,
    read_by,
)

CLASSES = contract("causal_models.yaml")["classes"]
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
def odd_checkpoints(tmp_path_factory):
    """Folders of checkpoints in which no setting has its default, by model and form of their config.json."""
    folder = tmp_path_factory.mktemp("odd")
    return {
        (model, form): write_checkpoint(folder / f"{model} {form}", model, form) for model in THETA for form in FORMS
    }


@pytest.fixture(scope="session")
def quantized_once(modelopt_python, odd_checkpoints, tmp_path_factory):
    """All that a process with ModelOpt is needed for: to start one takes longer than to quantize these models."""
    folder = tmp_path_factory.mktemp("modelopt")
    refused = {
        "twice": {"format": "int8_sq"},
        "no architecture": {"format": "fp8", "checkpoint": str(of_no_architecture(folder / "foreign"))},
        "no numbers": {"format": "fp8", "checkpoint": str(without_numbers(folder / "nan")), "measure": False},
    }
    odd = {
        key: {"format": key[2], "checkpoint": str(odd_checkpoints[key[:2]]), "texts": AWQ_TEXTS, "measured": ODD_TEXTS}
        for key in ODD
    }
    runs = {**MADE, **FURTHER, **refused, **odd}
    dropped = {str(odd_checkpoints[model, "older"]): fields for model, fields in DROPPED.items()}
    return quantized(modelopt_python, folder, runs, dropped, map(str, odd_checkpoints.values()))


@pytest.fixture(scope="session")
def results(quantized_once):
    """What came of each run, by its name; of an odd checkpoint, by model, form and format."""
    return quantized_once["runs"]


@pytest.fixture(scope="session", params=VERSIONS)
def environment(request):
    return request.param


@pytest.fixture(scope="session")
def known(environment, tmp_path_factory):
    """What an environment's transformers knows of classes and defaults, read in one process."""
    folder = tmp_path_factory.mktemp(environment)
    return read_by(environment, folder, classes=list(CLASSES), defaults=CONFIGURATIONS)


@pytest.fixture(scope="session")
def read_of(environment, quantized_once, odd_checkpoints, tmp_path_factory):
    """What an environment's transformers reads of each odd checkpoint and of what was made of it, by folder."""
    if environment == "modelopt":
        return quantized_once["read"]["folders"]
    made = [quantized_once["runs"][key]["out"] for key in ODD]
    folders = [str(each) for each in (*odd_checkpoints.values(), *made)]
    return read_by(environment, tmp_path_factory.mktemp("read"), folders=folders)["folders"]
