"""quantize, build and assemble one after the other, as their pods run them."""

import os
from pathlib import Path

import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.contracts.stored.plan import DatasetFile, Datasets, HubFile
from slipway.tasks.steps import assemble, build, quantize
from tests.fakes.documents.step_workspace import StepWorkspace
from tests.fakes.releases import release
from tests.local.engines.demo_model import dataset
from tests.support.paths import REPOSITORY

SMOKE = {"prompt": "What is the capital of France?", "answer": "The capital of France is Paris."}
GATE = {"smoke": [SMOKE], "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}]}


@pytest.fixture
def asked():
    made = release(gate=GATE)
    file = HubFile(path="perplexity.jsonl", digest="git-sha1:" + "a" * 40, size_bytes=1)
    pinned = DatasetFile(repo="slipway/demo-questions", commit="a" * 40, file=file)
    plan = made.plan.model_copy(update={"datasets": Datasets(perplexity=pinned)})
    return made.model_copy(update={"plan": plan})


def test_each_step_stores_what_the_next_one_reads(asked, checkpoint, tmp_path, tritonserver, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(tritonserver).parent}:{os.environ['PATH']}")
    keys = {stage: planned.key for stage, planned in asked.plan.stages.items()}
    shared = StepWorkspace(tmp_path, datasets={"perplexity.jsonl": dataset("perplexity")}, clock=SystemClock())
    shared.templates = REPOSITORY / "model_repository_templates"
    shared.artifacts.put("download", keys["download"], checkpoint)

    def over(name):
        made = StepWorkspace(tmp_path / name, templates=shared.templates, clock=SystemClock())
        made.artifacts, made.datasets = shared.artifacts, shared.datasets
        return made

    quantized = quantize.run(asked, over("quantize"))
    built = build.run(asked, over("build"))
    assembled = assemble.run(asked, over("assemble"))

    manifests = shared.artifacts.manifests
    assert manifests["quantize", keys["quantize"]].inputs == {"download": keys["download"]}
    assert manifests["build", keys["build"]].inputs == {"quantize": keys["quantize"]}
    assert manifests["assemble", keys["assemble"]].inputs == {"build": keys["build"]}
    assert quantized.data["metrics"]["perplexity"] == pytest.approx(3.78, rel=0.05)
    assert built.data["engine"]["limits"]["max_sequence_tokens"] == 256
    assert SmokeQuestion(**SMOKE).accepts(assembled.data["boot"]["answer"])
    stored = {file.path for file in manifests["assemble", keys["assemble"]].files}
    assert {"demo/config.pbtxt", "demo/1/model.py"} <= stored
    assert not any("engine/" in path for path in stored)
