"""Every name of vLLM that its model uses is in the wheels: what is imported, called, and given by keyword."""

import ast

import pytest

from slipway.tasks.engines.huggingface.vllm import KEEPS_ADAPTERS_APART, version_of
from tests.contracts.upstream_tables import parsed
from tests.support.paths import ENVIRONMENTS, REPOSITORY

VERSIONS = ("0.24.0", "0.27.1", "0.32.0")
MODEL = REPOSITORY / "model_repository_templates" / "vllm" / "model" / "1"
FILES = ("vllm_runtime.py", "engine_metrics.py")
PLACES = {
    "SamplingParams": ("sampling_params.py", "SamplingParams"),
    "StructuredOutputsParams": ("sampling_params.py", "StructuredOutputsParams"),
}
"""Classes whose fields are given by keyword."""
ATTRIBUTES = {
    ("v1/engine/async_llm.py", "AsyncLLM"): ("from_engine_args", "generate", "check_health", "shutdown"),
    ("v1/metrics/stats.py", "IterationStats"): (
        *("num_prompt_tokens", "num_generation_tokens", "time_to_first_tokens_iter", "inter_token_latencies_iter"),
    ),
    ("outputs.py", "CompletionOutput"): ("token_ids", "logprobs", "finish_reason"),
    ("outputs.py", "RequestOutput"): ("outputs", "finished", "prompt_token_ids", "prompt_logprobs"),
    ("lora/request.py", "LoRARequest"): ("lora_name", "lora_int_id", "lora_path"),
}
"""What the model uses of objects that vLLM makes, or gives by position."""


@pytest.fixture(params=VERSIONS)
def package(request):
    return ENVIRONMENTS / f"vllm-{request.param}" / "lib/python3.11/site-packages/vllm"


def class_of(package, file, name):
    (found,) = [node for node in parsed(package / file).body if isinstance(node, ast.ClassDef) and node.name == name]
    return found


def members(found):
    """Names of a class: its methods, its fields, and what its methods set."""
    for node in ast.walk(found):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def calls(name):
    for file in FILES:
        for node in ast.walk(parsed(MODEL / file)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == name:
                yield {word.arg for word in node.keywords if word.arg}


def test_what_is_imported_is_there(package):
    imports = [
        node
        for file in FILES
        for node in ast.walk(parsed(MODEL / file))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("vllm.")
    ]

    assert len(imports) > 5
    for node in imports:
        path = package.parent / node.module.replace(".", "/")
        file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        bound = {
            name
            for each in parsed(file).body
            for name in (
                *([each.name] if isinstance(each, ast.ClassDef | ast.FunctionDef) else []),
                *([alias.name for alias in each.names] if isinstance(each, ast.ImportFrom) else []),
            )
        }
        assert {alias.name for alias in node.names} <= bound, node.module


@pytest.mark.parametrize("name", PLACES)
def test_what_is_given_by_keyword_is_a_field(package, name):
    (given,) = calls(name)

    assert given <= set(members(class_of(package, *PLACES[name])))


@pytest.mark.parametrize("name", ["generate", "from_engine_args"])
def test_what_a_method_is_given_by_keyword_is_an_argument(package, name):
    (given,) = calls(name)
    methods = [each for each in class_of(package, "v1/engine/async_llm.py", "AsyncLLM").body if hasattr(each, "args")]
    (arguments,) = [each.args for each in methods if each.name == name]

    assert given <= {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}


@pytest.mark.parametrize("place", ATTRIBUTES, ids=lambda place: place[1])
def test_what_is_read_is_there(package, place):
    assert set(ATTRIBUTES[place]) <= set(members(class_of(package, *place)))


def test_versions_that_keep_adapters_apart_are_those_that_plan_lets_load_them_while_requests_run(package):
    """vllm-project/vllm pull request 47725 remembers the slots; without it, two running requests swap adapters."""
    version = package.parents[3].name.removeprefix("vllm-")
    manager = class_of(package, "lora/model_manager.py", "LoRAModelManager")

    keeps_apart = version_of(version) >= version_of(KEEPS_ADAPTERS_APART)
    assert ("_last_slot_layout" in set(members(manager))) == keeps_apart
