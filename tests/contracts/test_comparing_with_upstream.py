"""`python -m tests.contracts compare` finds where an upstream file says otherwise than its record."""

import re

import pytest

from tests.contracts.__main__ import UPSTREAM, main
from tests.contracts.extract import READERS, differences
from tests.contracts.recorded import FOLDER, contract

ENTRIES = contract(UPSTREAM)
REQUIREMENTS = "fastapi==0.121.2\nopenai==1.107.3\n"
DOCKERFILE = """\
ARG BASE_IMAGE=nvcr.io/nvidia/tritonserver:25.12-py3-min
ARG TRT_VER=10.14.1.48
ARG PIP_WHL_VER_TORCH=2.10.0a0+b4e4ee81d3.nv25.12
ARG TENSORRTLLM_VER=1.2.1
RUN python3.12 -m venv /opt/venv-tritonserver
ENV PATH="/opt/venv-tritonserver/bin:${PATH}"
"""
OUR_OWN = "written_paths.yaml"
OF_PAGES = {"metrics.yaml", "airflow_chart.json", "kind_cluster.yaml", "cloudwatch_agent.json"}
"""Read in documentation or from a running server, which each of them names."""
"""What our own programs write, which upstream does not say."""


def entry(record, reads):
    return next(each for each in ENTRIES if (each["record"], each["reads"]) == (record, reads))


def found(record, reads, text):
    return differences(entry(record, reads), contract(record), text)


def test_each_record_says_in_which_repository_commit_and_path_it_was_read():
    files = (
        {file.name for file in FOLDER.iterdir() if file.suffix in {".yaml", ".json"}} - {UPSTREAM, OUR_OWN} - OF_PAGES
    )

    assert {each["record"] for each in ENTRIES} == files
    assert all(each["repository"] and each["path"] and each["commits"] and each["reads"] in READERS for each in ENTRIES)


def test_what_is_confirmed_names_the_commits_of_what_images_are_built_from():
    confirmed = [each for each in ENTRIES if each["confirmed"]]

    assert len(confirmed) == 14
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for each in confirmed for commit in each["commits"].values())


def test_a_file_as_it_was_recorded_differs_in_nothing():
    assert found("tensorrt_llm_openai.yaml", "requirements", REQUIREMENTS) == []
    assert found("triton_image_layout.yaml", "dockerfile", DOCKERFILE) == []


@pytest.mark.parametrize(
    ("record", "reads", "text", "words"),
    [
        ("tensorrt_llm_openai.yaml", "requirements", "openai==2.1.0\n", "recorded as 1.107.3, the file has 2.1.0"),
        (
            "tensorrt_llm_openai.yaml",
            "imports",
            "from openai.types.responses import ResponseAudio\n",
            "openai.types.responses.ResponseAudio is imported, and not recorded",
        ),
        (
            "triton_image_layout.yaml",
            "dockerfile",
            DOCKERFILE.replace("TENSORRTLLM_VER=1.2.1", "TENSORRTLLM_VER=1.3.0"),
            "ARG TENSORRTLLM_VER is recorded as 1.2.1, the file has 1.3.0",
        ),
        (
            "triton_image_layout.yaml",
            "dockerfile",
            DOCKERFILE.replace("/opt/venv-", "/opt/"),
            "-m venv /opt/venv-tritonserver",
        ),
        (
            "tritonserver.yaml",
            "options",
            '{OPTION_X, "model-repository", Option::ArgStr',
            "--exit-timeout-secs is recorded",
        ),
        (
            "quantize.yaml",
            "argparse",
            'parser.add_argument("--calib_size", type=int, default=1024)',
            "--calib_size: default is recorded as 512, the file has 1024",
        ),
        ("quantize.yaml", "argparse", "", "--qformat is recorded, and not in the file"),
        (
            "trtllm_build.yaml",
            "plugins",
            "class PluginConfig:\n    gemm: str = ''\n",
            "--gemm_plugin is recorded, and PluginConfig",
        ),
        (
            "llm_arguments.yaml",
            "fields",
            "class BaseLlmArgs:\n    tensor_parallel_size: int = Field(default=2, description='')\n",
            "tensor_parallel_size: default is recorded as 1, the file has 2",
        ),
        (
            "triton_tensorrt_llm_model.json",
            "tensors",
            '  name: "new_input"\n',
            "new_input is in the file, and not recorded",
        ),
        ("template_parameters.yaml", "placeholders", "${engine_dir} ${new}", "new is in the file, and not recorded"),
    ],
)
def test_what_a_file_says_otherwise_is_named(record, reads, text, words):
    assert any(words in each for each in found(record, reads, text))


def test_a_changed_custom_resource_is_named():
    properties = {"spec": {"type": "object", "properties": {"replicas": {"type": "string"}}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    text = f"spec: {{versions: [{{schema: {schema}}}]}}".replace("'", '"')

    assert "/spec/replicas: type is recorded as 'integer', the file has 'string'" in found(
        "leaderworkerset.json", "custom_resource", text
    )


def test_a_checkout_is_compared_by_the_paths_in_it(tmp_path, capsys):
    file = tmp_path / "python" / "openai" / "requirements.txt"
    file.parent.mkdir(parents=True)
    file.write_text(REQUIREMENTS)

    assert main(["compare", str(tmp_path)]) == 0
    file.write_text("openai==2.1.0\n")
    assert main(["compare", str(tmp_path)]) == 1
    assert "tensorrt_llm_openai.yaml" in capsys.readouterr().out


def test_a_folder_without_a_recorded_file_is_no_agreement(tmp_path):
    assert main(["compare", str(tmp_path)]) == 2
