"""The demo model in ModelOpt's formats and what it refuses, made in one process of ModelOpt's own environment."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.fixtures.odd_checkpoints import write_checkpoint
from tests.support.paths import ENVIRONMENTS, HUB

CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"
CALIBRATION_TEXTS = 64
AWQ_TEXTS = 8  # it searches for scales, which takes most of the time and needs few texts
CACHE_TEXTS = 8
ODD_TEXTS = 6
LIMIT_S = 600
ODD = (
    *(("llama", form, "fp8") for form in ("older", "newer", "both")),
    ("llama", "older", "int4_awq"),
    ("qwen2", "older", "fp8"),
    ("qwen2", "newer", "int4_awq"),
)
MADE = {
    "fp8": {"format": "fp8"},
    "int8_sq": {"format": "int8_sq"},
    "int4_awq": {"format": "int4_awq", "texts": AWQ_TEXTS},
}
FURTHER = {
    "fp8 again": {"format": "fp8", "measure": False},
    "int8_sq again": {"format": "int8_sq", "measure": False},
    "fp8 with its cache": {"format": "fp8", "kv_cache": "fp8", "measure": False},
    "int4_awq with its cache": {"format": "int4_awq", "kv_cache": "fp8", "texts": CACHE_TEXTS, "measure": False},
    "nvfp4": {"format": "nvfp4"},
}


def texts(name):
    file = HUB / "datasets" / "slipway" / "demo-questions" / "v1" / f"{name}.jsonl"
    return [json.loads(line)["text"] for line in file.read_text().splitlines()]


@pytest.fixture(scope="session")
def modelopt_python():
    """The interpreter of the environment; SLIPWAY_MODELOPT_PYTHON names another one."""
    return Path(os.environ.get("SLIPWAY_MODELOPT_PYTHON") or interpreter("modelopt"))


def interpreter(environment):
    found = ENVIRONMENTS / environment / "bin" / "python"
    assert found.exists(), f"{found} is missing; `make test` makes it: python3 -m local.environments {environment}"
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


def quantized(python, folder, runs):
    """What came of each run, by its key."""
    for number, asked in enumerate(runs.values()):
        asked.setdefault("out", str(folder / f"out-{number}"))
    if "twice" in runs:
        runs["twice"]["checkpoint"] = runs["fp8"]["out"]
    job = {
        "checkpoint": str(CHECKPOINT),
        "calibration": texts("calibration")[:CALIBRATION_TEXTS],
        "perplexity": texts("perplexity"),
        "runs": list(runs.values()),
    }
    file = folder / "job.json"
    file.write_text(json.dumps(job))
    run_in(python, "quantize_demo.py", str(file))
    found = json.loads(file.with_suffix(".result.json").read_text())
    return {
        key: {**result, "out": Path(asked["out"]), "source": Path(asked.get("checkpoint", CHECKPOINT))}
        for (key, asked), result in zip(runs.items(), found, strict=True)
    }


def run_in(python, script, *arguments):
    """A script of this folder in another environment; what it printed."""
    done = subprocess.run(
        [str(python), str(Path(__file__).with_name(script)), *arguments],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
