"""Runs in environments of their own, of the demo model in ModelOpt's formats."""

import json
import os
import subprocess
from pathlib import Path

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
VERSIONS = {"transformers4": "4.57.3", "modelopt": "5.14.1"}
"""Of transformers, by environment."""
DROPPED = {
    "llama": ("rope_theta", "rope_scaling", "rms_norm_eps", "tie_word_embeddings", "biases"),
    "qwen2": ("rope_theta", "sliding_window", "rms_norm_eps", "tie_word_embeddings", "biases"),
}
"""Settings of the odd checkpoints, each of which changes what is computed."""
MADE = {
    "fp8": {"format": "fp8"},
    "int8_sq": {"format": "int8_sq"},
    "int4_awq": {"format": "int4_awq", "texts": AWQ_TEXTS},
}


def texts(name):
    file = HUB / "datasets" / "slipway" / "demo-questions" / "v1" / f"{name}.jsonl"
    return [json.loads(line)["text"] for line in file.read_text().splitlines()]


def interpreter(environment):
    found = ENVIRONMENTS / environment / "bin" / "python"
    assert found.exists(), f"{found} is missing; `make test` makes it: python3 -m local.environments {environment}"
    return found


def quantized(python, folder, runs, dropped, folders):
    """What came of each run, by its key; of the folders without fields that are dropped; and what was read of folders."""
    for number, asked in enumerate(runs.values()):
        asked.setdefault("out", str(folder / f"out-{number}"))
    runs["twice"]["checkpoint"] = runs["fp8"]["out"]
    job = {
        "checkpoint": str(CHECKPOINT),
        "calibration": texts("calibration")[:CALIBRATION_TEXTS],
        "perplexity": texts("perplexity"),
        "runs": list(runs.values()),
        "dropped": dropped,
        "folders": [*folders, *(runs[key]["out"] for key in ODD)],
    }
    file = folder / "job.json"
    file.write_text(json.dumps(job))
    run_in(python, "quantize_demo.py", str(file))
    found = json.loads(file.with_suffix(".result.json").read_text())
    return {
        **found,
        "runs": {
            key: {**result, "out": Path(asked["out"]), "source": Path(asked.get("checkpoint", CHECKPOINT))}
            for (key, asked), result in zip(runs.items(), found["runs"], strict=True)
        },
    }


def read_by(environment, folder, **job):
    """What an environment's transformers reads: read_transformers.py."""
    file = folder / "job.json"
    file.write_text(json.dumps(job))
    found = json.loads(run_in(interpreter(environment), "read_transformers.py", str(file)))
    assert found["version"] == VERSIONS[environment]
    return found


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
