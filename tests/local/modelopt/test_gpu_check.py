"""`make gpu-check` on a machine without a GPU: what a CPU can run is run, and every other line says why it was not."""

import json
import os
import subprocess

import pytest

from tests.gpu.checks import CHECKS
from tests.local.modelopt.runs import LIMIT_S, interpreter
from tests.support.paths import REPOSITORY

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The exit code, and status and detail of each check that has to do with fp8."""
    out = tmp_path_factory.mktemp("report")
    done = subprocess.run(
        [str(interpreter("modelopt")), "-m", "tests.gpu", "--out", str(out / "kept"), "--only", "fp8"],
        cwd=REPOSITORY,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (out / "kept" / "report.md").read_text().startswith("GPU check of ")
    found = json.loads((out / "kept" / "report.json").read_text())["lines"]
    return done.returncode, {line["name"]: (line["status"], line["detail"]) for line in found}


def test_it_ends_with_the_code_for_a_machine_without_a_gpu(report):
    code, lines = report

    assert code == 75, lines


def test_fp8_is_quantized_read_back_and_compared_with_the_source_on_a_cpu(report):
    _, lines = report

    for name in ("source", "source generates", "quantize fp8", "fp8 generates, dequantized"):
        assert lines[name][0] == "passed", lines[name]
    assert "read back as FP8" in lines["quantize fp8"][1]


def test_every_line_that_needs_a_gpu_says_so(report):
    _, lines = report

    assert set(lines) == {name for name in CHECKS if "fp8" in name} | {
        "torch sees the GPU",
        "source",
        "source generates",
    }
    for name in ("torch sees the GPU", "fp8 by TensorRT-LLM", "fp8 by vLLM", "trt-engine fp8"):
        status, reason = lines[name]
        assert (status, "no GPU" in reason) == ("skipped", True), reason
