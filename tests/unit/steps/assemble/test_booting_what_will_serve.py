"""assemble stores nothing that it did not see working."""

import json
import os
from pathlib import Path

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.serving.pod.boot import BootPlace
from slipway.tasks.steps import assemble
from tests.fakes.documents.step_workspace import StepWorkspace
from tests.fakes.releases import release, spec
from tests.support.paths import REPOSITORY

TEMPLATES = REPOSITORY / "model_repository_templates"
CONFIG = """name: "{{ name }}" backend: "python"
input { name: "text_input" data_type: TYPE_STRING dims: 1 }
output { name: "text_output" data_type: TYPE_STRING dims: 1 }
"""
ENGINE = {
    "chat_template": True,
    "limits": {"max_batch_size": 8, "max_input_tokens": 128, "max_sequence_tokens": 256},
    "scheduler": {},
    "properties": {},
    "versions": {},
}


@pytest.fixture
def workspace(tmp_path):
    version = tmp_path / "templates" / "openvino" / "model" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt.j2").write_text(CONFIG)
    (version / "model.py").write_text("")
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "engine.json").write_text(json.dumps(ENGINE))
    made = StepWorkspace(tmp_path, templates=tmp_path / "templates")
    made.artifacts.put("build", release().plan.stages["build"].key, tmp_path / "engine")
    return made


def serve_with(tmp_path, monkeypatch, script):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "tritonserver").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "tritonserver").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def is_stored(workspace):
    return any(stage == "assemble" for stage, _ in workspace.artifacts.manifests)


def test_a_repository_that_does_not_boot_is_not_stored(tmp_path, monkeypatch, workspace):
    serve_with(tmp_path, monkeypatch, "echo 'error: no such backend'; exit 1")

    with pytest.raises(InputError) as caught:
        assemble.run(release(), workspace)

    assert caught.value.what == "Triton ended with exit code 1 before demo was ready"
    assert caught.value.found == "last output: error: no such backend"
    assert not is_stored(workspace)


def test_a_repository_that_does_not_parse_is_not_booted(tmp_path, monkeypatch, workspace):
    serve_with(tmp_path, monkeypatch, f"touch {tmp_path}/booted; exit 1")
    (workspace.templates / "openvino" / "model" / "config.pbtxt.j2").write_text('name: "another"')

    with pytest.raises(InputError) as caught:
        assemble.run(release(), workspace)

    assert (caught.value.found, caught.value.expected) == ("'another'", "'demo'")
    assert not (tmp_path / "booted").exists()
    assert not is_stored(workspace)


def test_the_server_sees_the_engine_inside_its_version(tmp_path, monkeypatch, workspace):
    seen = tmp_path / "seen"
    script = f'for a in "$@"; do case $a in --model-repository=*) cd "${{a#*=}}"; find . -type f > {seen};; esac; done; exit 1'
    serve_with(tmp_path, monkeypatch, script)

    with pytest.raises(InputError):
        assemble.run(release(), workspace)

    assert sorted(seen.read_text().split()) == [
        "./demo/1/engine/engine.json",
        "./demo/1/model.py",
        "./demo/config.pbtxt",
    ]


RANKED = {
    "quantization": {"format": "none"},
    "engine": {
        "kind": "trt-engine",
        "gpu": "NVIDIA-A10G",
        "max_batch_size": 8,
        "max_input_tokens": 128,
        "max_sequence_tokens": 256,
    },
}
PLACE = BootPlace(Path("/here"), "127.0.0.1", {"http": 1, "grpc": 2}, "boot", 10)


def ranked(**engine):
    return spec(**{**RANKED, "engine": {**RANKED["engine"], **engine}})


def test_what_is_booted_is_what_will_serve_elsewhere():
    asked = ranked(tensor_parallel=2)

    words = assemble.serving_command(asked, PLACE)

    contexts = " ".join(words).split(" : ")
    assert words[0] == "mpirun"
    assert len(contexts) == 2
    assert all("--model-repository=/here" in context for context in contexts)
    assert "--http-port=1 --grpc-address=127.0.0.1 --grpc-port=2 --allow-metrics=false" in contexts[0]
    assert "--load-model=demo_tensorrt_llm" in contexts[1]
    assert [f"shm-region-prefix-name=boot-rank{number}-" in context for number, context in enumerate(contexts)] == [
        True,
        True,
    ]


def test_a_server_on_one_gpu_is_booted_without_mpirun():
    words = assemble.serving_command(ranked(), PLACE)

    assert words[0] == "tritonserver"
    assert "--disable-auto-complete-config" in words


def test_a_groups_member_is_booted_on_the_gpu_ids_that_it_will_have(tmp_path, monkeypatch):
    """An engine that is booted on id 0 proves nothing about the id that serves."""
    script = f'for a in "$@"; do case $a in --model-repository=*) cp "${{a#*=}}"/demo_tensorrt_llm/config.pbtxt {tmp_path};; esac; done; exit 1'
    serve_with(tmp_path, monkeypatch, script)
    made = release(**RANKED, serving={"group": "chat", "gpus": [2]})

    with pytest.raises(InputError) as caught:
        assemble.run(made, workspace_of_an_engine(tmp_path, made))

    assert caught.value.expected == "the model to load"
    assert 'key: "gpu_device_ids" value { string_value: "2" }' in (tmp_path / "config.pbtxt").read_text()


def workspace_of_an_engine(tmp_path, made):
    described = {**ENGINE, "kv_cache_fraction": 0.9, "paged_attention": True}
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "engine.json").write_text(json.dumps(described))
    (tmp_path / "engine" / "rank0.engine").write_bytes(b"gigabytes")
    workspace = StepWorkspace(tmp_path, templates=TEMPLATES)
    workspace.artifacts.put("build", made.plan.stages["build"].key, tmp_path / "engine")
    return workspace


def test_ranks_that_span_nodes_are_rendered_and_not_booted(tmp_path, monkeypatch):
    serve_with(tmp_path, monkeypatch, f"touch {tmp_path}/booted; exit 1")
    made = release(
        **{**RANKED, "engine": {**RANKED["engine"], "tensor_parallel": 4, "pipeline_parallel": 2}},
    )
    workspace = workspace_of_an_engine(tmp_path, made)

    outcome = assemble.run(made, workspace)

    assert [path.name for path in (tmp_path / "scratch" / "engine").iterdir()] == ["engine.json"]
    assert outcome.summary.endswith("not booted: the engine's ranks span 2 nodes")
    assert not (tmp_path / "booted").exists()
    assert is_stored(workspace)
    assert "demo_tensorrt_llm" in outcome.data["models"]
