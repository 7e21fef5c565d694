"""docs/faults.md has a row for each fault, and names tests that exist."""

import ast
import re
from functools import cache

import pytest

from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "faults.md").read_text()
FACTS = {"verdict", "live", "left", "channel", "again"}
FAULTS = {
    "kill -9 of plan",
    "kill -9 of download",
    "kill -9 of quantize, build, assemble or publish",
    "kill -9 of roll-out, or of fetch-repository in the serving pod",
    "kill -9 of smoke-test, benchmark or gate",
    "kill -9 of evaluate",
    "kill -9 of check-network",
    "kill -9 of promote, during the flip",
    "kill -9 of roll-back",
    "kill -9 of revert",
    "kill -9 of drill",
    "kill -9 of load-adapters, or a pod that cannot reach the store meanwhile",
    "a pod that starts, or its adapters container alone, while the store is away or lacks adapters",
    "kill -9 of retention",
    "retention while a release is on its way, waits or goes back",
    "a lease that a person edits, empties or gives to another run",
    "pod deleted from outside",
    "pod evicted by the kubelet",
    "disk full in the pod",
    "image missing",
    "node gone",
    "task runner killed",
    "scheduler killed",
    "triggerer killed",
    "embedded API server killed",
    "node away, API server there",
    "API server away at random requests",
    "API server away while a step's pod runs",
    "API server away for longer than roll-back tries",
    "pod refused by the cluster",
    "cluster refuses pods of a candidate",
    "Airflow does not answer the command",
    "cluster lost, channel kept",
    "Triton crashes as assemble boots it",
    "Triton of the candidate killed",
    "Triton of the live release killed",
    "kill -9 of Triton, the front or the OpenAI server in a serving pod",
    "S3 answers with 5xx",
    "S3 refuses connections",
    "S3 answers slowly",
    "S3's answer to a successful write is lost",
    "S3 breaks off in a read",
    "Hub cut off",
    "Hub sends wrong bytes",
    "Hub is busy (429, 503)",
    "candidate never ready",
    "candidate answers nonsense",
    "candidate slows down after smoke-test",
    "two releases of a model at once",
    "release and rollback at once",
    "release, drill, rollback and restore at once",
    "run marked as failed midway",
    "clock skew",
    "stale lock of a dead run",
}
TEST = re.compile(r"([\w./-]+\.py)::(\w+)")


def rows():
    """The cells of the table of faults, by the fault."""
    table = PAGE.partition("| fault | what happens |")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0]: row[1:] for row in cells}


@cache
def functions(path):
    tree = ast.parse((REPOSITORY / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_fault_has_one_row_and_each_row_is_about_a_known_fault():
    assert set(rows()) == FAULTS


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_row_names_tests_and_what_they_assert_or_says_that_there_are_none(fault):
    _, shown_by, against, asserts = rows()[fault]
    named = TEST.findall(shown_by)

    assert (shown_by == "none") == (not named) == (against == "")
    assert set(filter(None, asserts.split(", "))) <= FACTS
    assert bool(asserts) <= bool(named)


@pytest.mark.parametrize(("path", "test"), sorted(set(TEST.findall(PAGE))))
def test_every_test_that_the_page_names_exists(path, test):
    assert test.startswith("test_")
    assert test in functions(path)
