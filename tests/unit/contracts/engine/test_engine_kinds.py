"""Code asks the record of an engine kind, and never compares its name."""

import ast
from typing import get_args

import pytest

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, EngineKind
from slipway.tasks.contracts.spec_fields import MAX_NAME_CHARS
from tests.support.paths import REPOSITORY

MAY_COMPARE = (
    "slipway/tasks/contracts/engine/engine_kinds.py",
    "slipway/tasks/engines/registry.py",
    *[f"slipway/tasks/engines/{folder}/" for folder in ("openvino", "trtllm", "huggingface")],
)
SOURCES = [file for folder in ("slipway", "dags") for file in sorted((REPOSITORY / folder).rglob("*.py"))]


def is_kind(node):
    """Whether the expression is the name of a kind, or a collection that holds one."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(is_kind(each) for each in node.elts)
    return isinstance(node, ast.Constant) and node.value in ENGINE_KINDS


def compared(tree):
    """Lines that compare a value with the name of a kind, match it, or look something up by it."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others) if any(map(is_kind, (left, *others))):
                yield node.lineno
            case ast.MatchValue(value=value) if is_kind(value):
                yield value.lineno
            case ast.Subscript(value=ast.Name(id="Literal")):
                continue  # an annotation says nothing about a kind
            case ast.Subscript(slice=key) if is_kind(key):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]) if is_kind(key):
                yield node.lineno
            case _:
                pass


def test_only_the_records_the_registry_and_the_engines_compare_the_names_of_kinds():
    lines = [
        f"{name}:{line}"
        for file in SOURCES
        if not (name := file.relative_to(REPOSITORY).as_posix()).startswith(MAY_COMPARE)
        for line in compared(ast.parse(file.read_text()))
    ]

    assert lines == []


@pytest.mark.parametrize(
    "code",
    [
        'kind == "vllm"',
        'kind in ("vllm", "llmapi")',
        'serving.get("vllm")',
        'serving["vllm"]',
        'match kind:\n    case "vllm":\n        pass',
    ],
)
def test_a_comparison_in_any_form_is_seen(code):
    assert list(compared(ast.parse(code)))


def test_every_kind_has_its_record_its_folder_of_templates_and_a_name_that_labels_hold():
    assert set(ENGINE_KINDS) == set(get_args(EngineKind))
    assert {folder.name for folder in (REPOSITORY / "model_repository_templates").iterdir()} >= set(ENGINE_KINDS)
    assert all(len(kind) <= MAX_NAME_CHARS for kind in ENGINE_KINDS)


@pytest.mark.parametrize("traits", ENGINE_KINDS.values(), ids=list(ENGINE_KINDS))
def test_traits_of_a_kind_go_together(traits):
    assert (traits.flavour is not None) == bool(traits.triton_releases) == traits.on_gpu
    assert not (traits.compiled and traits.quantized_by_modelopt)
    assert not traits.spans_nodes or traits.server_per_rank or traits.rank_launcher
    assert not (traits.spans_nodes and traits.one_node_because)
    assert bool(traits.options) == traits.on_gpu
    assert not traits.does_by_itself.intersection(traits.options)
