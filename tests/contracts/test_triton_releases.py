"""`python -m tests.contracts triton` takes releases from Triton's compatibility.md, and lets serve those that plan knows."""

import pytest

from slipway.tasks.contracts.engine.triton_releases import ROWS
from tests.contracts.triton_matrix import MODULE, matrix_of, merged, module, outcome
from tests.support.paths import REPOSITORY

UPSTREAM = (REPOSITORY / "tests" / "fixtures" / "triton" / "compatibility.md").read_text()
"""Of triton-inference-server/server at 6fa22ae02 (branch r26.08), from 25.09 on, without the head."""


def with_release(release, like, **changed):
    """Upstream's page with a row of a later release, which differs from an existing one in some words."""
    (line,) = [each for each in UPSTREAM.splitlines() if each.startswith(f"| {like[0]} |") and f"-{like[1]}-" in each]
    row = line.replace(like[0], release)
    for before, after in changed.values():
        assert before in row
        row = row.replace(before, after)
    return UPSTREAM.replace(line, f"{row}\n{line}")


def added(text):
    """What the page changes in the rows that are stored."""
    rows = merged(ROWS, matrix_of(text), "abc")
    return {(flavour, row[0]): row for flavour in rows for row in rows[flavour] if row not in ROWS[flavour]}


def test_stored_rows_are_those_of_upstreams_page():
    assert added(UPSTREAM) == {}
    assert module(ROWS) == MODULE.read_text()


def test_a_release_whose_vllm_has_a_table_serves():
    page = with_release("26.09", ("26.08", "vllm"), runtime=("0.27.1", "0.32.0"))

    assert added(page) == {("vllm", "26.09"): ("26.09", "0.32.0", None, "13.4.1.012", "abc", True)}


@pytest.mark.parametrize(
    ("like", "change", "words"),
    [
        (("26.08", "vllm"), ("0.27.1", "0.99.0"), "vllm-0.99.0.json is absent"),
        (("26.07", "trtllm"), ("| 1.2.1 |", "| 1.3.0 |"), "engines are built with TensorRT-LLM 1.2.1"),
    ],
)
def test_a_release_whose_runtime_plan_does_not_know_is_recorded_and_does_not_serve(like, change, words):
    ((key, row),) = added(with_release("26.10", like, runtime=change)).items()

    assert (key, row[-1]) == ((like[1], "26.10"), False)
    assert words in outcome(like[1], row, None)


def test_rows_of_a_runtime_that_the_page_no_longer_has_stay():
    assert added(UPSTREAM[: UPSTREAM.index("## Container Name: vllm-")]) == {}


def test_a_row_that_upstream_corrected_is_replaced_and_says_so():
    page = UPSTREAM.replace("0.24.0+092c4842", "0.24.1+092c4842")

    row = added(page)["vllm", "26.07"]

    assert (row[:2], row[-1]) == (("26.07", "0.24.1"), False)
    assert "recorded before: 0.24.0" in outcome("vllm", row, ROWS["vllm"][1])
