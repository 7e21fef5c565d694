"""A tag makes a release of what the repository says of itself, or of nothing."""

import os
import re
import runpy
import subprocess

import pytest

from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

SCRIPT = runpy.run_path(str(REPOSITORY / ".github" / "release_notes.py"))
notes, NotReadyError = SCRIPT["notes"], SCRIPT["NotReadyError"]
STEPS = load_yaml((REPOSITORY / ".github/workflows/release.yml").read_text())["jobs"]["release"]["steps"]
COMMANDS = "\n".join(step.get("run", "") for step in STEPS)


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "docs" / "changelog").mkdir(parents=True)
    (tmp_path / "docs" / "changelog" / "README.md").write_text("How to write one.\n")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 1.2.0 - 2026-12-01\n\n- A.\n\n## 1.1.0 - 2026-01-01\n\n- B.\n"
    )
    return tmp_path


def test_a_release_says_what_its_section_of_the_changelog_says(repository):
    assert notes(repository, "v1.2.0") == "- A.\n"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("pyproject.toml", '[project]\nversion = "1.3.0"\n', "expected v1.3.0"),
        ("docs/changelog/more.fix.md", "C.\n", "still has more.fix.md"),
        ("CHANGELOG.md", "## 1.2.0 - unreleased\n\n- A.\n", "a date"),
        ("CHANGELOG.md", "## 1.1.0 - 2026-01-01\n\n- B.\n", "expected 1.2.0"),
        ("CHANGELOG.md", "", "None"),
    ],
)
def test_a_repository_that_is_not_ready_is_not_released(repository, file, text, said):
    (repository / file).write_text(text)

    with pytest.raises(NotReadyError, match=said):
        notes(repository, "v1.2.0")


def test_the_workflow_builds_what_there_is():
    bake = (REPOSITORY / "docker-bake.hcl").read_text()
    targets = re.findall(r"^([a-z0-9-]+)(?=[ a-z0-9-]*:(?!=))", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    (groups,) = re.findall(r"bake --push --metadata-file \S+ (.+)$", COMMANDS, re.MULTILINE)
    (archived,) = re.findall(r"tar --create --gzip --file \S+ (.+)$", COMMANDS, re.MULTILINE)

    assert set(groups.split()) <= set(re.findall(r'^group "(\w+)"', bake, re.MULTILINE))
    assert set(re.findall(r"make (\w+)", COMMANDS)) <= set(targets)
    assert all((REPOSITORY / folder).is_dir() for folder in archived.split())


def test_nothing_follows_the_one_command_that_cannot_run_twice():
    commands = [step.get("run", "") for step in STEPS]

    (created,) = [number for number, command in enumerate(commands) if "gh release create" in command]
    (built,) = [number for number, command in enumerate(commands) if command == "make docs"]
    (pushed,) = [number for number, command in enumerate(commands) if "bake --push" in command]
    assert built < pushed < created == len(commands) - 1


def test_the_registry_of_an_owner_with_capitals_is_a_name_that_docker_accepts(tmp_path):
    (command,) = [step["run"] for step in STEPS if "REGISTRY=" in step.get("run", "")]
    variables = {
        "GITHUB_REPOSITORY": "Acme-Models/Slipway",
        "GITHUB_ENV": str(tmp_path / "env"),
        "PATH": os.environ["PATH"],
    }

    subprocess.run(["bash", "-c", command], env=variables, check=True)

    assert (tmp_path / "env").read_text() == "REGISTRY=ghcr.io/acme-models/slipway\n"
