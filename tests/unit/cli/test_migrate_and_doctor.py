"""`slipway migrate` and `slipway doctor`, which need no Airflow."""

from pathlib import Path

import pytest
import yaml

from tasks.contracts.spec import ReleaseSpec

SPECS = Path(__file__).parents[3] / "specs"


def test_a_spec_is_printed_for_the_other_kind_with_what_changes(slipway, capsys):
    code, printed = slipway("migrate", str(SPECS / "llama-3-8b-awq-l4.yaml"), "--to", "llmapi")

    text, _, notes = printed.partition(str(SPECS))
    assert code == 0
    assert ReleaseSpec.model_validate(yaml.safe_load(text)).engine.kind == "llmapi"
    assert "changed: engine.kind: trt-engine → llmapi" in notes
    assert "no equivalent: ensemble" in notes


@pytest.mark.parametrize(("spec", "words"), [("demo", "has engine.kind openvino"), ("nowhere", "No such file")])
def test_what_cannot_be_migrated_is_a_wrong_input(slipway, spec, words):
    code, printed = slipway("migrate", str(SPECS / f"{spec}.yaml"))

    assert code == 65
    assert words in printed


def test_the_doctor_prints_a_command_for_each_contract(slipway):
    code, printed = slipway("doctor", "--image-contract", "--release", "26.05")

    assert code == 0
    assert "# tests/contracts/trtllm_build.yaml" in printed
    assert (
        "docker run --rm --gpus 1 nvcr.io/nvidia/tritonserver:26.05-trtllm-python-py3 bash -c 'trtllm-build --help'"
        in printed
    )
    assert "tritonserver:26.05-vllm-python-py3" in printed


def test_the_doctor_says_what_it_can_look_at(slipway):
    code, printed = slipway("doctor")

    assert code == 65
    assert "--image-contract" in printed
