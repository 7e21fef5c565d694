"""The files around the code name what is there: paths, make targets, versions and ranges."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
FOLDERS = sorted(
    str(path.relative_to(REPOSITORY))
    for path in (*REPOSITORY.iterdir(), *(REPOSITORY / "slipway").iterdir())
    if path.is_dir() and (not path.name.startswith(".") or path.name == ".github") and path.name != "slipway"
)
"""`slipway/` alone begins names of images and of Hub repositories as well."""
PATH = re.compile(rf"(?<![\w/.~-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]+")
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "requirements/*.md", "tests/**/*.md", "local/**/*.md", ".github/**/*")
    for path in REPOSITORY.glob(pattern)
    if path.is_file()
)
FRAGMENT = re.compile(r"[a-z0-9-]+\.(feature|fix|change)\.md")
SHA = re.compile(r"[\w./-]+@[0-9a-f]{40}")


def make_targets():
    return set(re.findall(r"^([a-z0-9-]+)(?=[ a-z0-9-]*:(?!=))", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))


def workflow():
    return load_yaml((REPOSITORY / ".github/workflows/ci.yml").read_text())


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_path_that_a_document_names_exists(document):
    named = {path.rstrip(".") for path in PATH.findall(document.read_text())}

    assert {path for path in named if not any(REPOSITORY.glob(f"{path.rstrip('/')}*"))} == set()


def test_the_changelog_has_a_section_for_the_version_of_the_wheel():
    sections = re.findall(r"^## (\S+)", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert sections[0] == PROJECT["version"]


def test_changelog_fragments_are_named_by_their_type():
    names = {path.name for path in (REPOSITORY / "docs/changelog").iterdir()} - {"README.md"}

    assert {name for name in names if not FRAGMENT.fullmatch(name)} == set()


def test_ci_runs_make_targets_that_exist_and_all_that_a_developer_is_told_to_run():
    targets = {entry["target"] for entry in workflow()["jobs"]["make"]["strategy"]["matrix"]["include"]}
    commands = [step["run"] for step in steps(workflow()) if step.get("run", "").startswith("make ")]

    assert targets == {"check", "docs", "demo", "test"}
    assert targets <= make_targets()
    assert commands == ["make ${{ matrix.target }}", "make down"]


def test_actions_of_every_workflow_are_pinned_by_commit():
    workflows = [load_yaml(file.read_text()) for file in (REPOSITORY / ".github" / "workflows").iterdir()]
    used = [step["uses"] for each in workflows for step in steps(each) if "uses" in step]

    assert len(used) >= len(workflows)
    assert [action for action in used if not SHA.fullmatch(action)] == []


def test_pre_commit_runs_the_projects_own_tools():
    (repository,) = load_yaml((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"]
    made = {hook["entry"].split()[1] for hook in repository["hooks"] if hook["entry"].startswith("make ")}

    assert repository["repo"] == "local"
    assert made == {"lint", "types"}
    assert made <= make_targets()


@pytest.mark.parametrize(
    ("dependency", "lock"),
    [(each, "local") for each in PROJECT["dependencies"]]
    + [(each, "airflow") for each in PROJECT["optional-dependencies"]["airflow"]],
)
def test_each_dependency_of_the_wheel_is_a_range_that_holds_the_locked_version(dependency, lock):
    requirement = Requirement(dependency)
    text = (REPOSITORY / f"requirements/{lock}.lock").read_text()
    locked = dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([\w.]+)", text, re.MULTILINE))
    operators = {specifier.operator for specifier in requirement.specifier}

    assert operators == {">=", "<"}
    assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])


def test_code_that_two_programs_need_is_linked_and_not_copied():
    folders = ("slipway", "model_repository_templates", "local", "bench", "demo", "images")
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py") if not path.is_symlink()]
    first = {text: path for path in reversed(files) if len(text := path.read_text()) > 200}

    assert {path for path in files if first.get(path.read_text(), path) != path} == set()
