"""SECURITY.md: each row of the threat model names tests, which exist, or says why there is none."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
TEXT = (REPOSITORY / "SECURITY.md").read_text()
ROWS = re.findall(r"^\|.*\|.*\|.*\| (tests/.*|no test: .*) \|$", TEXT, re.MULTILINE)
TEST = re.compile(r"(\S+\.py)::(\w+)")


@cache
def functions(path):
    tree = ast.parse((REPOSITORY / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_everyone_who_may_attack_has_a_row_with_tests():
    section = TEXT.partition("## Threat model")[2]

    people = (
        "client",
        "may trigger",
        "spec author",
        "Hub author",
        "adapter's author",
        "bucket writer",
        "cluster tenant",
    )
    for who in people:
        assert re.search(rf"^\| [^|]*{who}[^|]*\|.*\| tests/", section, re.MULTILINE), who
    assert len(ROWS) == section.count("\n|") - 2


@pytest.mark.parametrize(("path", "test"), sorted(set(TEST.findall(TEXT))))
def test_every_test_that_it_names_exists(path, test):
    assert test in functions(path)
