"""The demo model in ModelOpt's formats, each made once, in ModelOpt's own environment."""

import json
import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
HUB = REPOSITORY / "tests" / "fixtures" / "hub"
CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"
CALIBRATION_TEXTS = 64
LIMIT_S = 600


def texts(name):
    file = HUB / "datasets" / "slipway" / "demo-questions" / "v1" / f"{name}.jsonl"
    return [json.loads(line)["text"] for line in file.read_text().splitlines()]


@pytest.fixture(scope="session")
def modelopt_python():
    """The interpreter of the environment; SLIPWAY_MODELOPT_PYTHON names another one."""
    own = REPOSITORY / ".slipway" / "envs" / "modelopt" / "bin" / "python"
    found = Path(os.environ.get("SLIPWAY_MODELOPT_PYTHON") or own)
    if not found.exists():
        pytest.skip(f"ModelOpt's environment is not made ({found}): python3 -m local.environments modelopt")
    return found


@pytest.fixture(scope="session")
def quantize(modelopt_python, tmp_path_factory):
    """Run jobs of quantize_demo.py in one process; their results, in order."""

    def run(*runs):
        folder = tmp_path_factory.mktemp("modelopt")
        runs = [{"out": str(folder / f"out-{number}"), **asked} for number, asked in enumerate(runs)]
        job = {
            "checkpoint": str(CHECKPOINT),
            "calibration": texts("calibration")[:CALIBRATION_TEXTS],
            "perplexity": texts("perplexity"),
            "runs": runs,
        }
        file = folder / "job.json"
        file.write_text(json.dumps(job))
        script = Path(__file__).with_name("quantize_demo.py")
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [str(modelopt_python), str(script), str(file)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        results = json.loads(file.with_suffix(".result.json").read_text())
        return [{**result, "out": Path(asked["out"])} for asked, result in zip(runs, results, strict=True)]

    return run
