"""The demo model in ModelOpt's formats and what it refuses, made in one process of ModelOpt's own environment."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

REPOSITORY = Path(__file__).resolve().parents[3]
HUB = REPOSITORY / "tests" / "fixtures" / "hub"
CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"
CALIBRATION_TEXTS = 64
AWQ_TEXTS = 8  # it searches for scales, which takes most of the time and needs few texts
CACHE_TEXTS = 8
LIMIT_S = 600
MADE = {
    "fp8": {"format": "fp8"},
    "int8_wo": {"format": "int8_wo"},
    "int8_sq": {"format": "int8_sq"},
    "int4_awq": {"format": "int4_awq", "texts": AWQ_TEXTS},
}
FURTHER = {
    "fp8 again": {"format": "fp8", "measure": False},
    "int8_sq again": {"format": "int8_sq", "measure": False},
    "fp8 with its cache": {"format": "fp8", "kv_cache": "fp8", "measure": False},
    "int8_wo with its cache": {"format": "int8_wo", "kv_cache": "fp8", "texts": CACHE_TEXTS, "measure": False},
    "nvfp4": {"format": "nvfp4"},
}


def texts(name):
    file = HUB / "datasets" / "slipway" / "demo-questions" / "v1" / f"{name}.jsonl"
    return [json.loads(line)["text"] for line in file.read_text().splitlines()]


@pytest.fixture(scope="session")
def modelopt_python():
    """The interpreter of the environment; SLIPWAY_MODELOPT_PYTHON names another one."""
    own = REPOSITORY / ".slipway" / "envs" / "modelopt" / "bin" / "python"
    found = Path(os.environ.get("SLIPWAY_MODELOPT_PYTHON") or own)
    assert found.exists(), f"{found} is missing; `make test` makes it: python3 -m local.environments modelopt"
    return found


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
        "twice": {"format": "int8_wo", "checkpoint": str(folder / "fp8")},
        "no architecture": {"format": "int8_wo", "checkpoint": str(of_no_architecture(folder / "foreign"))},
        "no numbers": {"format": "fp8", "checkpoint": str(without_numbers(folder / "nan")), "measure": False},
    }
    runs = {name: {"out": str(folder / name), **asked} for name, asked in {**MADE, **FURTHER}.items()}
    runs |= {name: {"out": str(folder / name), **asked} for name, asked in refused.items()}
    job = {
        "checkpoint": str(CHECKPOINT),
        "calibration": texts("calibration")[:CALIBRATION_TEXTS],
        "perplexity": texts("perplexity"),
        "runs": list(runs.values()),
    }
    file = folder / "job.json"
    file.write_text(json.dumps(job))
    done = subprocess.run(
        [str(modelopt_python), str(Path(__file__).with_name("quantize_demo.py")), str(file)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(file.with_suffix(".result.json").read_text())
    return {
        name: {**result, "out": Path(asked["out"])} for (name, asked), result in zip(runs.items(), found, strict=True)
    }
