"""`slipway migrate` and `slipway doctor`, which need no Airflow."""

import pytest
import yaml

from slipway.cli.cluster.image_ages import months_between
from slipway.tasks.contracts.spec.fleet import read_specs
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

SPECS = REPOSITORY / "specs"


def test_a_spec_is_printed_for_the_other_kind_with_what_changes(slipway, capsys):
    code, printed = slipway("migrate", str(SPECS / "llama-3-8b-awq-l4.yaml"), "--to", "llmapi")

    text, _, notes = printed.partition(str(SPECS))
    assert code == 0
    assert ReleaseSpec.model_validate(load_yaml(text)).engine.kind == "llmapi"
    assert "changed: engine.kind: trt-engine → llmapi" in notes
    assert "no equivalent: ensemble" in notes


def test_each_model_of_a_fleet_is_rewritten_in_the_one_spec(slipway):
    file = SPECS / "fleets" / "chat.yaml"

    code, printed = slipway("migrate", str(file), "--to", "vllm")

    assert code == 0
    document = load_yaml(printed.out)
    l4, h100 = read_specs(document, "rewritten").models
    assert [(model.engine.kind, model.quantization.format) for model in (l4, h100)] == [
        ("vllm", "fp8_online"),
        ("vllm", "fp8"),
    ]
    assert (l4.quantization.calibration, h100.engine.max_batch_size) == (None, 64)
    assert list(document) == list(load_yaml(file.read_text()))
    notes = printed.removeprefix(printed.out)
    assert f"{file}: chat-l4: trt-engine to vllm" in notes
    assert "quantization.format int4_awq: rewritten to fp8_online" in notes.partition("chat-h100")[0]
    assert "quantization.format" not in notes.partition("chat-h100")[2]


def test_a_model_of_a_fleet_that_is_of_the_kind_already_stays(slipway, tmp_path):
    fleet = load_yaml((SPECS / "fleets" / "chat.yaml").read_text())
    fleet["fleet"]["NVIDIA-H100-80GB-HBM3"]["engine"]["kind"] = "llmapi"
    (tmp_path / "chat.yaml").write_text(yaml.safe_dump(fleet))

    code, printed = slipway("migrate", str(tmp_path / "chat.yaml"), "--to", "llmapi")

    assert code == 0
    l4, h100 = read_specs(load_yaml(printed.out), "rewritten").models
    assert (l4.engine.kind, h100) == ("llmapi", read_specs(fleet, "before").models[1])
    assert "chat-h100" not in printed.removeprefix(printed.out)


@pytest.mark.parametrize(
    ("spec", "words"), [("demo", "found openvino, expected trt-engine or llmapi"), ("nowhere", "No such file")]
)
def test_what_cannot_be_migrated_is_a_wrong_input(slipway, spec, words):
    code, printed = slipway("migrate", str(SPECS / f"{spec}.yaml"))

    assert code == 65
    assert words in printed


def test_a_site_file_cannot_be_migrated(slipway):
    code, printed = slipway("migrate", str(SPECS.parent / "sites" / "eks.yaml"))

    assert code == 65
    assert "found a site file, expected a release spec" in printed


def test_the_doctor_prints_a_command_for_each_contract(slipway):
    code, printed = slipway("doctor", "--image-contract", "--release", "26.05")

    assert code == 0
    assert "# tests/contracts/trtllm_build.yaml" in printed
    assert (
        "docker run --rm --gpus 1 nvcr.io/nvidia/tritonserver:26.05-trtllm-python-py3 bash -c 'trtllm-build --help'"
        in printed
    )
    assert "tritonserver:26.05-vllm-python-py3" in printed


def test_the_doctor_imports_by_the_interpreter_that_will_run_it(slipway):
    _, printed = slipway("doctor", "--image-contract", "--release", "26.05")
    commands = [line for line in printed.splitlines() if line.startswith("docker run") and "import " in line]

    own, images = "slipway/tasks-gpu:dev-26.05-trtllm", '-c "import '
    assert any(f"{own} bash -c 'python {images}slipway.tasks.command" in line and "torch" in line for line in commands)
    assert any(f"{own} bash -c 'python3 {images}numpy" in line and "tensorrt_llm.llmapi" in line for line in commands)
    assert any("slipway/tasks-modelopt:dev" in line and "modelopt.torch.quantization" in line for line in commands)


def test_the_doctor_checks_the_images_of_a_site(slipway):
    code, printed = slipway("doctor", "--image-contract", "--site", str(SPECS.parent / "sites" / "eks.yaml"))

    assert code == 0
    assert "slipway/triton-multinode:0.1.0-26.07-trtllm bash -c 'python3 /etc/slipway-mpi/image_mpi.py'" in printed
    assert "slipway/tasks-gpu:0.1.0-26.07-vllm@sha256" in printed


def test_the_doctor_checks_the_site_of_the_program(slipway):
    site = str(SPECS.parent / "sites" / "eks.yaml")

    assert slipway("--site", site, "doctor", "--image-contract") == slipway(
        "doctor", "--image-contract", "--site", site
    )


@pytest.mark.parametrize("release", ["26.07; rm -rf ~", "$(id)", "26.07\n", "2026.07"])
def test_the_doctor_prints_no_command_for_what_is_no_release(slipway, release):
    code, printed = slipway("doctor", "--image-contract", "--release", release)

    assert code == 65
    assert "--release is not a Triton release" in printed
    assert "docker run" not in printed


def test_the_doctor_says_which_image_a_site_lacks(slipway):
    _, printed = slipway("doctor", "--image-contract", "--site", str(SPECS.parent / "sites" / "local.yaml"))

    assert "# launch of ranks over nodes: the site has no image triton-multinode" in printed


def test_the_doctor_says_how_old_each_image_of_a_site_is(slipway):
    code, printed = slipway("doctor", "--images", "--site", str(SPECS.parent / "sites" / "eks.yaml"))
    ages = dict(line.split(": ", 1) for line in printed.splitlines())

    assert code == 0
    assert ages["vllm"].startswith("Triton 26.07 (vLLM 0.24.0), 1 month behind Triton 26.08 (vLLM 0.27.1)")
    for kind in ("trt-engine", "llmapi", "several nodes"):
        assert ages[kind].startswith("Triton 26.07 (TensorRT-LLM 1.2.1), the newest that serves it, and the last")
    assert ages["openvino"].startswith("built by this project")


def test_the_doctor_says_which_image_plan_refuses(slipway, tmp_path):
    site = (SPECS.parent / "sites" / "eks.yaml").read_text()
    (tmp_path / "old.yaml").write_text(site.replace("0.1.0-26.07-vllm", "0.1.0-26.02-vllm"))

    code, printed = slipway("doctor", "--images", "--site", str(tmp_path / "old.yaml"))

    assert code == 0
    assert "vllm: refused by plan" in printed
    assert "found Triton 26.02, which contains vllm 0.15.1" in printed


def test_the_doctor_needs_a_site_for_the_ages_of_images(slipway):
    code, printed = slipway("doctor", "--images")

    assert code == 65
    assert "--images needs a site file" in printed


@pytest.mark.parametrize(
    ("earlier", "later", "months"), [("26.07", "26.08", 1), ("25.11", "26.02", 3), ("26.07", "26.07", 0)]
)
def test_releases_are_months_apart(earlier, later, months):
    assert months_between(earlier, later) == months
