"""`slipway doctor --image-contract` shows how each recorded contract is confirmed, and imports all that runs in an image."""

import ast
import sys
from pathlib import Path

import pytest

from slipway.cli.cluster.image_contract import CONFIRMATIONS, PACKAGES_OF_SERVERS, PACKAGES_OF_STEPS, STEPS_OF_IMAGE
from tests.contracts.recorded import contract
from tests.support.paths import REPOSITORY

CUSTOM_RESOURCES = {each["record"] for each in contract("upstream.yaml") if each["reads"] == "custom_resource"}
ELSEWHERE = {"public_models.yaml", "causal_models.yaml", "upstream.yaml", "written_paths.yaml"} | CUSTOM_RESOURCES
ELSEWHERE |= {"metrics.yaml", "airflow_chart.json", "kind_cluster.yaml", "cloudwatch_agent.json"}
ELSEWHERE |= {
    f"{server}_{route}_request.yaml" for server in ("vllm", "tensorrt_llm") for route in ("chat", "completion")
}
"""Records of other servers' OpenAI routes, of the Hub, of a cluster's controllers, of our own programs, of where the others were read, and of transformers,
which tests/local/modelopt executes: no image's."""
OPTIONAL = {"opentelemetry"}
"""Steps run without spans where it is absent, and say so."""
OF_OTHER_IMAGES = {
    *("slipway.tasks.steps.plan", "slipway.tasks.engines.registry"),
    *("slipway.tasks.adapters.hub.hub", "slipway.tasks.adapters.hub.sources"),
    "slipway.tasks.adapters.judge.expectations",
}
"""Modules that a step of another image loads, and the table that loads one engine, which an image names."""
NOT_IN = {
    "tasks-gpu-trtllm": {"slipway.tasks.engines.huggingface.modelopt"},
    "tasks-gpu-vllm": {
        "slipway.tasks.engines.huggingface.modelopt",
        "slipway.tasks.serving.pod.lead",
        "slipway.tasks.serving.pod.all_reduce",
        "slipway.tasks.adapters.kube.kube",
        "slipway.tasks.adapters.load.served_traffic",
    },
    "tasks-modelopt": {
        *(
            "slipway.tasks.serving.pod.lead",
            "slipway.tasks.adapters.kube.kube",
            "slipway.tasks.adapters.load.served_traffic",
        ),
        "slipway.tasks.steps.fetch_repository",
        *("slipway.tasks.adapters.sign.kms", "slipway.tasks.adapters.sign.signatures"),
    },
}
"""Modules that are loaded only for another step or engine kind."""
SERVED = {
    "tasks-gpu-trtllm": ("llmapi/model", "trt-engine/model", "trt-engine/model_preprocessing"),
    "tasks-gpu-vllm": ("vllm/model",),
}
TRITONS_OWN = {"triton_python_backend_utils"}


def test_each_contract_of_an_image_has_its_command():
    files = {file.name for file in Path(__file__).parent.iterdir() if file.suffix in {".yaml", ".json"}}

    named = {each.contract for each in CONFIRMATIONS if each.contract.endswith((".yaml", ".json"))}

    assert files - ELSEWHERE == named


@pytest.mark.parametrize("image", STEPS_OF_IMAGE)
def test_all_that_an_images_steps_import_is_imported_by_the_doctor(image):
    found = packages_of(STEPS_OF_IMAGE[image], without=OF_OTHER_IMAGES | NOT_IN[image])

    assert {top(name) for name in PACKAGES_OF_STEPS[image]} == {top(name) for name in found} - OPTIONAL


@pytest.mark.parametrize("image", SERVED)
def test_all_that_slipways_own_models_import_is_imported_by_the_doctor(image):
    templates = REPOSITORY / "model_repository_templates"
    files = [*(templates / "openvino" / "model" / "1" / "generation").rglob("*.py")]
    files += [file for model in SERVED[image] for file in (templates / model / "1").glob("*.py")]
    local = {file.stem for file in files} | {"generation"}

    found = (
        {top(name) for file in files for name in imported(file)} - local - set(sys.stdlib_module_names) - TRITONS_OWN
    )

    assert found <= {top(name) for name in PACKAGES_OF_SERVERS[image]}


def packages_of(modules, without):
    """Modules of others that these and all of slipway/tasks that they reach import."""
    found, seen, rest = set(), set(without), list(modules)
    while rest:
        module = rest.pop()
        if module in seen:
            continue
        seen.add(module)
        for name in imported(file_of(module)):
            if top(name) == "slipway":
                rest.append(name if file_of(name).exists() else name.rpartition(".")[0])
            elif top(name) not in sys.stdlib_module_names:
                found.add(name)
    return found


def file_of(module):
    path = REPOSITORY / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(file):
    """Dotted names that a file imports, anywhere in it; what is taken from a module comes with the module's name."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def top(name):
    """The package; of what shares a namespace, as google.protobuf does, the part below it."""
    return ".".join(name.split(".")[:2]) if name.startswith("google.") else name.partition(".")[0]
