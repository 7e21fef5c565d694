"""A check that lets everything through proves nothing."""

import pytest

from tests.contracts.recorded import check_command, check_document, contract

BUILD, SERVER = contract("trtllm_build.yaml"), contract("tritonserver.yaml")
LLM = contract("llm_arguments.yaml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--use_custom_all_reduce", "disable"], "has no --use_custom_all_reduce"),
        (["--max_output_len", "2048"], "has no --max_output_len"),
        (["--tp_size", "4"], "has no --tp_size"),
        (["--gemm_plugin", "float8"], "none of"),
        (["--workers", "four"], "invalid literal"),
        (["--workers", "1", "--workers", "2"], "stands twice"),
        (["--paged_kv_cache", "enable"], "is deprecated"),
        (["--output_dir", "engines"], "working folder"),
    ],
)
def test_flags_of_old_tutorials_and_wrong_values_are_found(words, message):
    with pytest.raises((AssertionError, ValueError), match=message):
        check_command(words, BUILD)


def test_a_switch_takes_no_value_and_a_repeatable_flag_may_repeat():
    check_command(["--load-model=a", "--load-model=b", "--disable-auto-complete-config"], SERVER)
    with pytest.raises(AssertionError, match="takes no value"):
        check_command(["--disable-auto-complete-config=true"], SERVER)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"max_sequence_len": 1}, "no field max_sequence_len"),
        ({"kv_cache_config": {"free_gpu_mem_fraction": 0.9}}, "no field free_gpu_mem_fraction"),
        ({"max_batch_size": "8"}, "expected int"),
        ({"max_batch_size": True}, "truth value"),
        ({"backend": "pytorch"}, "deprecated"),
    ],
)
def test_fields_that_the_class_forbids_are_found(document, message):
    with pytest.raises(AssertionError, match=message):
        check_document(document, LLM)


@pytest.mark.parametrize(
    "name", ["trtllm_build", "quantize", "convert_checkpoint", "tritonserver", "llm_arguments", "vllm_engine_arguments"]
)
def test_a_contract_says_where_it_was_read_and_of_which_version(name):
    recorded = contract(f"{name}.yaml")

    assert recorded["source"].startswith("https://github.com/")
    assert any(digit in recorded["version"] for digit in "0123456789")


def test_defaults_are_among_the_choices():
    for name in ("trtllm_build", "quantize", "convert_checkpoint", "tritonserver"):
        for flag, allowed in contract(f"{name}.yaml")["flags"].items():
            assert allowed.get("default") in [None, *allowed.get("choices", [allowed.get("default")])], flag
