"""What the GPU check says of a machine, and the exit code that it ends with."""

import json

import pytest

from tests.fixtures.odd_checkpoints import LLAMA3, VOCABULARY
from tests.gpu.checks import AGREE, PROMPT_TOKENS, PROMPTS, Bench, Skipped, agreement, line_of, prompts
from tests.gpu.report import FAILED, PASSED, SKIPPED, Line, as_json, as_markdown, exit_code

HOST = {"gpu": None, "commit": "abc"}


def line(status):
    return Line("quantize fp8", status, "a | b", 1.0)


def failing(bench):
    raise RuntimeError("CUDA error:\nout of memory")


def skipping(bench):
    raise Skipped("not installed: vllm")


@pytest.mark.parametrize(
    ("statuses", "gpu", "code"),
    [
        ([PASSED, SKIPPED], True, 0),
        ([PASSED, FAILED], True, 1),
        ([PASSED, FAILED], False, 1),
        ([PASSED, SKIPPED], False, 75),
        ([SKIPPED], False, 75),
    ],
)
def test_a_machine_without_a_gpu_never_passes(statuses, gpu, code):
    assert exit_code([line(status) for status in statuses], gpu=gpu) == code


@pytest.mark.parametrize(
    ("check", "status", "detail"),
    [
        (lambda bench: "made", PASSED, "made"),
        (failing, FAILED, "CUDA error: out of memory"),
        (skipping, SKIPPED, "not installed: vllm"),
    ],
)
def test_a_line_says_what_came_of_a_check_and_why(tmp_path, check, status, detail):
    found = line_of("a check", check, Bench(tmp_path, gpu=None))

    assert (found.status, found.detail) == (status, detail)


@pytest.mark.parametrize(("gpu", "reason"), [(None, "no GPU"), ("H100", "no GPU that torch sees")])
def test_what_needs_a_gpu_is_skipped_without_one(tmp_path, gpu, reason):
    with pytest.raises(Skipped, match=f"^{reason}$"):
        Bench(tmp_path, gpu).need(gpu=True)


def test_what_is_not_installed_is_named(tmp_path):
    with pytest.raises(Skipped, match="not installed: no_such_package, no-such-program"):
        Bench(tmp_path, gpu=None).need("json", "no_such_package", programs=("no-such-program",))


def test_both_reports_hold_every_line():
    lines = [line(PASSED), line(SKIPPED)]

    assert as_markdown(lines, HOST).count("| quantize fp8 |") == 2
    assert "| a / b |" in as_markdown(lines, HOST)
    assert [each["status"] for each in json.loads(as_json(lines, HOST))["lines"]] == [PASSED, SKIPPED]


def test_prompts_are_long_enough_for_scaled_positions_and_hold_no_special_token():
    found = prompts()

    assert found == prompts()
    assert len(found) == PROMPTS
    assert LLAMA3["original_max_position_embeddings"] < PROMPT_TOKENS
    assert all(4 < token < VOCABULARY for prompt in found for token in prompt[1:])


def test_agreement_is_the_share_of_equal_first_tokens():
    assert agreement([[1, 2], [3, 4]], [[1, 9], [9, 4]]) == 0.5
    assert set(AGREE) == {"none", "fp8", "int4_awq", "nvfp4"}
