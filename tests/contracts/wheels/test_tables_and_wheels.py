"""The tables and rules that plan reads are those of upstream's own wheels, which are read and never imported."""

import ast
import contextlib
import fnmatch
import logging
import math
import random
import re
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace

import pytest

from slipway.tasks.contracts.engine.lora_support import VLLM_ADAPTERS
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.checkpoint.positions import NAMES as POSITIONS
from slipway.tasks.engines.checkpoint.positions import positions_of
from slipway.tasks.engines.checkpoint.predicting_layers import NAMES as PREDICTING
from slipway.tasks.engines.huggingface.speculation import VLLM_EAGLE3, VLLM_EAGLE3_LATER
from slipway.tasks.engines.huggingface.vllm import NOT_IN_FLOAT16
from slipway.tasks.engines.preflight.experts import NAMES as EXPERTS
from slipway.tasks.engines.preflight.fused_layers import check_fused_layers
from slipway.tasks.engines.preflight.layer_kinds import caching_layers
from slipway.tasks.engines.preflight.loras import KEPT_BASES
from slipway.tasks.engines.preflight.model_shape import LATENT_ATTENTION
from slipway.tasks.engines.upstream.tables import table_of
from tests.contracts.upstream_tables import TABLES, function, parsed, tables_of, written
from tests.fakes.hubs.brought_models import LLAMA
from tests.support.paths import REPOSITORY

VERSIONS = ("0.24.0", "0.27.1", "0.32.0")
"""Those of Triton 26.07 and 26.08, and one that is newer than any image."""
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"


def packages(environment):
    return ENVIRONMENTS / environment / "lib" / "python3.11" / "site-packages"


@pytest.mark.parametrize("environment", [*(f"vllm-{version}" for version in VERSIONS), "transformers4", "tasks"])
def test_stored_tables_are_those_of_the_wheel(environment):
    tables = dict(tables_of(packages(environment)))

    assert tables
    for name, table in tables.items():
        assert (TABLES / name).read_text() == written(table), name


@pytest.fixture(params=VERSIONS)
def table(request):
    """The stored one, which the test above compares."""
    return table_of("vllm", request.param)


def test_names_of_fields_are_those_that_vllm_reads(table):
    assert set(POSITIONS) == set(table["position_names"])
    assert set(EXPERTS) == set(table["expert_names"])
    assert set(table["mtp"]["layers"]) <= set(PREDICTING)
    assert set(VLLM_EAGLE3) | set(VLLM_EAGLE3_LATER) <= set(table["eagle3"])


FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
LAYERS = [f"model.layers.{layer}.{name}" for layer in (0, 1) for name in ("self_attn.qkv_proj", "mlp.gate_up_proj")]
IGNORED = [
    *(f"model.layers.0.self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj")),
    *("model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj", "model.layers.1.mlp.gate", "lm_head"),
    *("re:.*q_proj", "re:.*k_proj$", r"re:.*\.v_proj", "re:.*self_attn.*", r"re:.*mlp\.gate_proj$", r"re:.*\.up_proj"),
]


def ignoring_of(version):
    """should_ignore_layer of a wheel, with what it calls."""
    folder = packages(f"vllm-{version}") / "vllm" / "model_executor" / "layers" / "quantization"
    files = (folder / "utils" / "config_utils.py", folder / "compressed_tensors" / "utils.py")
    defined = [
        node
        for file in files
        if file.is_file()
        for node in parsed(file).body
        if isinstance(node, ast.FunctionDef) and ("match" in node.name or node.name == "should_ignore_layer")
    ]
    module = ast.Module([*ast.parse("from __future__ import annotations").body, *defined], [])
    names = {"re": re, "fnmatch": fnmatch, "MappingProxyType": MappingProxyType}
    exec(compile(module, str(files[-1]), "exec"), names)  # noqa: S102 - pinned by its digest
    return names["should_ignore_layer"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partly_ignored_layer_is_refused_when_vllm_would_refuse_it(version):
    ignores, config = ignoring_of(version), {**LLAMA, "model_type": "llama"}
    seen = set()
    for seed in range(400):
        chosen = random.Random(seed).sample(IGNORED, 3)  # noqa: S311 - no secret
        refused_by_vllm = True
        with contextlib.suppress(ValueError):
            for layer in LAYERS:
                ignores(layer, chosen, FUSED)
            refused_by_vllm = False
        stated = {"quant_method": "compressed-tensors", "ignore": chosen, "config_groups": {}}
        refused_here = True
        with contextlib.suppress(InputError):
            check_fused_layers(config, stated, version, "org/model")
            refused_here = False
        assert refused_here == refused_by_vllm, chosen
        seen.add(refused_here)
    assert seen == {True, False}


NAMED = [
    *(f"model.layers.0.self_attn.{name}_proj" for name in ("q", "k", "v", "qkv", "o")),
    *(f"model.layers.1.mlp.{name}" for name in ("gate_proj", "up_proj", "gate_up_proj", "down_proj")),
]
PARTS_OF_NAMES = [*NAMED, "self_attn", "q_proj", "k_proj", "v_proj", "mlp.up_proj", "lm_head"]
WILDCARDS = [*NAMED, "*.self_attn.q_proj", "*.self_attn.*", "*.qkv_proj", "*mlp.gate_proj", "*mlp.up_proj", "lm_head"]
SKIPS = "model_executor/layers/quantization/utils/quant_utils.py", "is_layer_skipped"
EXCLUDES = "model_executor/layers/quantization/modelopt.py", "is_layer_excluded"
GPTQ = "model_executor/layers/quantization/utils/gptq_utils.py", "is_layer_gptq_quantized"


def of_fp8(vllm, chosen):
    skips = executed(vllm / SKIPS[0], SKIPS[1], Mapping=Mapping, MappingProxyType=MappingProxyType)
    return lambda layer: skips(layer, chosen, FUSED), {"quant_method": "fp8", "ignored_layers": chosen}


def of_awq(vllm, chosen):
    skips = executed(vllm / SKIPS[0], SKIPS[1], Mapping=Mapping, MappingProxyType=MappingProxyType)
    stated = {"quant_method": "awq", "bits": 4, "modules_to_not_convert": chosen}
    return lambda layer: skips(layer, chosen, FUSED, skip_with_substr=True), stated


def of_modelopt(vllm, chosen):
    """As vLLM reads it: and it has to leave out what the list leaves out of a fused layer, whose packed form it lacks."""
    skips = executed(vllm / SKIPS[0], SKIPS[1], Mapping=Mapping, MappingProxyType=MappingProxyType)
    excludes = executed(vllm / EXCLUDES[0], EXCLUDES[1], is_layer_skipped=skips, fnmatch=fnmatch.fnmatch)
    config = SimpleNamespace(exclude_modules=chosen, packed_modules_mapping=FUSED)

    def judge(layer):
        folder, _, name = layer.rpartition(".")
        parts = [f"{folder}.{part}" for part in FUSED[name]]
        said = any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in chosen)
        if not excludes(config, layer) and said:
            raise ValueError(layer)

    return judge, {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": chosen}


def of_gptq(vllm, chosen):
    names = {"Mapping": Mapping, "MappingProxyType": MappingProxyType, "flatten_list": list}
    quantized = executed(vllm / GPTQ[0], GPTQ[1], **names)
    stated = {"quant_method": "gptq", "bits": 4, "sym": True, "modules_in_block_to_quantize": [chosen]}
    return lambda layer: quantized(layer, chosen, FUSED), stated


@pytest.mark.parametrize("version", ["0.24.0", "0.27.1"])
@pytest.mark.parametrize(
    ("method", "names"),
    [(of_fp8, NAMED), (of_awq, PARTS_OF_NAMES), (of_modelopt, WILDCARDS), (of_gptq, PARTS_OF_NAMES)],
)
def test_a_partly_quantized_layer_is_refused_when_vllm_would_fail_with_it(version, method, names):
    vllm, config = packages(f"vllm-{version}") / "vllm", {**LLAMA, "model_type": "llama"}
    seen = set()
    for seed in range(150):
        chosen = random.Random(seed).sample(names, 3)  # noqa: S311 - no secret
        judge, stated = method(vllm, chosen)
        refused_by_vllm = True
        with contextlib.suppress(ValueError):
            for layer in (*LAYERS, "model.layers.N.self_attn.qkv_proj", "model.layers.N.mlp.gate_up_proj"):
                judge(layer)
            refused_by_vllm = False
        refused_here = True
        with contextlib.suppress(InputError):
            check_fused_layers(config, stated, version, "org/model")
            refused_here = False
        assert refused_here == refused_by_vllm, chosen
        seen.add(refused_here)
    assert seen == {True, False}


@pytest.mark.parametrize("version", ["0.24.0", "0.27.1"])
def test_experts_are_adapted_at_once_where_vllm_says_so(version):
    folder = packages(f"vllm-{version}") / "vllm" / "model_executor" / "models"
    files = [file for file in folder.glob("*.py") if "is_3d_moe_weight: bool = True" in file.read_text()]
    classes = [each for file in files for each in parsed(file).body if isinstance(each, ast.ClassDef)]

    marked = {each.name for each in classes if "is_3d_moe_weight: bool = True" in ast.unparse(each)}
    assert marked == VLLM_ADAPTERS.stacked_experts


def test_adapters_that_began_otherwise_are_those_that_vllm_itself_takes_later():
    helper = parsed(packages("vllm-0.32.0") / "vllm" / "lora" / "peft_helper.py")
    texts = {node.value for node in ast.walk(function(helper, "_init_is_supported")) if isinstance(node, ast.Constant)}

    assert texts == KEPT_BASES


def test_lists_of_model_types_are_those_of_the_image():
    found = table_of("vllm", "0.24.0")

    assert {name for name in found["latent_types"] if "mtp" not in name} == LATENT_ATTENTION
    assert set(found["not_in_float16"]) == NOT_IN_FLOAT16


def executed(file, name, **names):
    """A function of a module, or a method of one of its classes, with nothing else of the module."""
    tree = parsed(file)
    found = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name), None)
    module = ast.Module([*ast.parse("from __future__ import annotations").body, found or function(tree, name)], [])
    space = {"logger": logging.getLogger(__name__), **names}
    exec(compile(module, str(file), "exec"), space)  # noqa: S102 - upstream's own function, pinned by its hash
    return space[name]


@pytest.mark.parametrize("version", ["0.24.0", "0.27.1"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}},
        {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}},
        {"model_type": "gemma3_text", "rope_parameters": {"rope_type": "linear", "factor": 8.0}},
        {"model_max_length": 8192},
        {"seq_length": 4096, "n_positions": 2048},
    ],
)
def test_positions_are_those_that_vllm_derives(version, fields):
    package = packages(f"vllm-{version}") / "vllm"
    config = {**LLAMA, "max_position_embeddings": 32768, **fields}
    convertor = SimpleNamespace(hf_text_config=SimpleNamespace(**config))
    derive = executed(package / "transformers_utils" / "model_arch_config_convertor.py", "derive_max_model_len_and_key")
    verify = executed(
        package / "config" / "model.py",
        "_get_and_verify_max_len",
        is_rope_parameters_nested=lambda _: False,
        current_platform=SimpleNamespace(check_max_model_len=lambda length: length),
    )
    architecture = SimpleNamespace(derived_max_model_len_and_key=derive(convertor))

    derived = verify(SimpleNamespace(**config), architecture, None, -1, False, None)

    expected = positions_of("vllm", config)
    assert math.isclose(derived, expected)


HYBRIDS = [
    ("jamba", {"num_hidden_layers": 32, "attn_layer_period": 8, "attn_layer_offset": 4}),
    ("bamba", {"num_hidden_layers": 32, "attn_layer_indices": [9, 18, 27]}),
    ("zamba2", {"num_hidden_layers": 54}),
    ("qwen3_next", {"num_hidden_layers": 48}),
    ("granitemoehybrid", {"num_hidden_layers": 4, "layer_types": ["mamba", "attention", "mamba", "mamba"]}),
    ("nemotron_h", {"num_hidden_layers": 8, "hybrid_override_pattern": "MEM*M*ME"}),
    ("lfm2", {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"]}),
]


@pytest.mark.parametrize(("model_type", "fields"), HYBRIDS, ids=lambda value: value if isinstance(value, str) else "")
def test_layers_that_cache_are_those_that_vllm_counts(model_type, fields):
    from transformers import AutoConfig

    config = AutoConfig.for_model(model_type, **fields)
    count = executed(packages("vllm-0.24.0") / "vllm" / "config" / "model.py", "get_num_layers_by_block_type")
    layers = config.num_hidden_layers
    model = SimpleNamespace(
        is_hybrid=True,
        has_noops=False,
        is_attention_free=False,
        hf_config=config,
        hf_text_config=config,
        model_arch_config=SimpleNamespace(text_model_type=model_type),
        get_layers_start_end_indices=lambda _: (0, layers),
        get_num_layers=lambda _: layers,
    )
    kind = "attention"

    assert sum(caching_layers({"model_type": model_type, **stated(config, fields)}, layers)) == count(model, None, kind)


def stated(config, fields):
    """What config.json has of a configuration: the fields of the test, and lists that the class derives."""
    derived = {name: getattr(config, name, None) for name in ("layers_block_type",) if name not in fields}
    return {
        **{name: value for name, value in derived.items() if value is not None and config.model_type == "zamba2"},
        **fields,
    }


def returned(found, name):
    """The text that a property of a class always returns."""
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name == name and isinstance(node.body[-1], ast.Return):
            value = node.body[-1].value
            return value.value if isinstance(value, ast.Constant) else None
    return None


def test_marks_of_thoughts_are_those_of_vllms_reasoning_parsers():
    """A parser names its pair by two properties."""
    channels = parsed(REPOSITORY / "model_repository_templates/shared/generation/model_files/channels.py")
    (marks,) = [
        ast.literal_eval(node.value)
        for node in channels.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "THOUGHT_MARKS"
    ]
    classes = [
        node
        for file in sorted((packages("vllm-0.32.0") / "vllm" / "reasoning").glob("*.py"))
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ClassDef)
    ]
    names = (("start_token", "end_token"), ("reasoning_start_str", "reasoning_end_str"))
    pairs = {(returned(each, begin), returned(each, end)) for each in classes for begin, end in names}
    known = {(begin, end) for begin, end in pairs if begin and end}

    assert len(known) >= 3
    assert known <= set(marks)
