"""The tutorial's and the README's code blocks: files are written, commands run, and print what the page says."""

import re
import shlex

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.spec.gate import Gate
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    """Language, file name and text of each fenced block."""
    return BLOCK.findall((REPOSITORY / page).read_text())


def test_every_command_of_the_tutorial_prints_what_it_says(slipway, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed, ran = "", 0
    for language, name, text in blocks("docs/tutorial.md"):
        if name:
            (tmp_path / name).write_text(text)
        if language == "bash":
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "slipway"
                printed, ran = slipway(*arguments)[1], ran + 1
        if language == "text":
            assert [line for line in text.splitlines() if line not in printed] == [], printed

    assert ran == 2


def test_the_tutorials_gate_is_one_with_the_spec_around_it():
    (extra,) = [
        load_yaml(text) for language, name, text in blocks("docs/tutorial.md") if language == "yaml" and not name
    ]
    smoke = [{"prompt": "What is the capital of France?", "answer": "Paris"}]

    assert Gate.model_validate({"smoke": smoke, **extra["gate"]}).quality


def test_the_readmes_spec_is_valid():
    (text,) = [text for language, _, text in blocks("README.md") if language == "yaml"]

    assert read_contract(ReleaseSpec, {"apiVersion": "slipway/v1", **load_yaml(text)}, "README.md").name == "demo-llama"


def test_ci_runs_the_readmes_commands():
    commands = re.findall(r"^    (make \w+)", (REPOSITORY / "README.md").read_text(), re.MULTILINE)

    assert commands == ["make demo", "make test", "make down"]
    assert set(commands) <= set((REPOSITORY / ".ci/run").read_text().splitlines())
