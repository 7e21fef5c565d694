"""assemble stores nothing that it did not see working."""

import json
import os

import pytest

from tasks.contracts.errors import InputError
from tasks.steps import assemble
from tests.fakes.releases import release
from tests.fakes.step_workspace import StepWorkspace

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
    (version.parent / "config.pbtxt.j2").write_text('name: "{{ name }}" backend: "python"\n')
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

    with pytest.raises(InputError, match=r"exit code 1 before demo was ready.*no such backend"):
        assemble.run(release(), workspace)

    assert not is_stored(workspace)


def test_a_repository_that_does_not_parse_is_not_booted(tmp_path, monkeypatch, workspace):
    serve_with(tmp_path, monkeypatch, f"touch {tmp_path}/booted; exit 1")
    (workspace.templates / "openvino" / "model" / "config.pbtxt.j2").write_text('name: "another"')

    with pytest.raises(InputError, match="names the model 'another'"):
        assemble.run(release(), workspace)

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
