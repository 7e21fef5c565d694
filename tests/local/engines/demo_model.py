"""The demo model's limits and texts, and the real Triton where it is installed."""

import json
import os
import shutil

import pytest

from tests.fakes.releases import SPEC, spec
from tests.support.paths import ENVIRONMENTS, HUB

TRITON_BIN = ENVIRONMENTS / "triton" / "bin"


def demo_spec(weights="int8", kv_cache="none"):
    """The demo's limits in another format."""
    return spec(quantization={"format": weights, "kv_cache": kv_cache}, engine={**SPEC["engine"], "max_batch_size": 4})


def dataset(name):
    """Lines of one of the demo's datasets."""
    file = HUB / "datasets" / "slipway" / "demo-questions" / "v1" / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="session")
def tritonserver():
    """Path of the command that starts Triton."""
    path = os.pathsep.join([str(TRITON_BIN), os.environ["PATH"]])
    found = shutil.which("tritonserver", path=path)
    if found is None:
        pytest.skip("no tritonserver: install it with images/triton-cpu/install_triton.py")
    return found


@pytest.fixture
def tritonserver_on_path(monkeypatch, tritonserver):
    monkeypatch.setenv("PATH", f"{TRITON_BIN}{os.pathsep}{os.environ['PATH']}")
