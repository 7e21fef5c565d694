"""validate refuses the repositories and revisions that the Hub's client or git refuse."""

import subprocess

import pytest
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from pydantic import TypeAdapter, ValidationError

from slipway.tasks.contracts.spec_fields import HubRepo, Revision

REPOSITORIES = [
    "../..", "-a/b", "a/-b", "a-/b", "a/b-", ".a/b", "a/.b", "a/b.", "a/b.git", "a--b/c", "a/b--c", "a..b/c", "a/b..c", "./b", "a/..",
    "a/" + "b" * 97, "a/" + "b" * 96, "a/b", "A_/b", "_a/b_", "a.b/c-d_e.f", "0/1", "a/b.gitx", "a-b/c", "meta-llama/Meta-Llama-3-8B",
]  # fmt: skip
REVISIONS = [
    "..",
    "../..",
    "a..b",
    ".a",
    "a/.b",
    "/a",
    "a/",
    "a//b",
    "a.lock",
    "main",
    "refs/pr/1",
    "v1.0",
    "a-b/c_d",
    "f" * 40,
    "a.lock/b",
]


def is_taken(kind, value):
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("repo", REPOSITORIES)
def test_a_repository_is_one_by_the_hubs_own_rules(repo):
    try:
        validate_repo_id(repo)
    except HFValidationError:
        assert not is_taken(HubRepo, repo)
    else:
        assert is_taken(HubRepo, repo)


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_revision_is_one_by_gits_own_rules(revision):
    of_git = subprocess.run(["git", "check-ref-format", "--allow-onelevel", revision], check=False).returncode == 0

    assert is_taken(Revision, revision) is of_git
