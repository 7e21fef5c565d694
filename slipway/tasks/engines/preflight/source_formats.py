"""How a checkpoint that another quantizer than ModelOpt made is quantized, by the names of gpu_formats.AS_IT_IS. Pure.

Sources: the `from_config` of each method in vllm/model_executor/layers/quantization, at v0.19.0 and v0.24.0, and
tensorrt_llm/_torch/model_config.py, load_hf_quant_config, near 1.2.
"""

from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]

GPTQ_BITS = (4, 8)
"""Widths that all pinned versions of vLLM serve: from 0.24 on only symmetric ones (auto_gptq.py, TYPE_MAP)."""

GPTQ_LAYOUTS = ("gptq", "gptq_v2")
"""Values of checkpoint_format with the tensors that vLLM reads. The two differ in zero points, which symmetric weights
have none of; others, as marlin, are packed for one kernel."""

AWQ_BITS = 4
AWQ_LAYOUT = "gemm"
AWQ_LAYOUTS = frozenset({AWQ_LAYOUT, "exllama", "ipex"})
"""Values of `version` with GEMM's layout (transformers/utils/quantization_config.py, AwqConfig). vLLM does not read the
field: of gemv, it finds tensors of other sizes (auto_awq.py, create_weights)."""
BLOCK = [128, 128]
"""Size of FP8 blocks: the only one that TensorRT-LLM reads, and that of all public checkpoints."""

COMPRESSED = "compressed-tensors"
AND = " and "
PACKED = "pack-quantized"
"""compressed-tensors' layout of integers with fewer bits than a byte."""


def name_of(stated: Fields) -> str:
    """The format of a quantized checkpoint, from `quantization_config` of its config.json.

    A method that no engine kind serves has the name that it has there, with what sets it apart.
    """
    method = str(stated.get("quant_method") or _unnamed(stated)).lower().replace("compressed_tensors", COMPRESSED)
    match method:
        case "awq":
            return _awq(stated)
        case "gptq":
            return _gptq(stated)
        case "fp8":
            return _fp8(stated)
        case "compressed-tensors":
            return f"{method} {_scheme(stated)}"
        case "mlx":
            return f"mlx of {stated.get('bits')} bits"
        case _:
            return method


def names_of(stated: Fields) -> tuple[str, ...]:
    """The formats of a checkpoint: the one that `name_of` gives, or each of those that compressed-tensors' groups have.

    vLLM finds the group of each layer (find_matched_target of compressed_tensors/utils.py, at v0.24.0).
    """
    groups = _object(stated.get("config_groups")).values()
    name = name_of(stated)
    if not name.startswith(COMPRESSED) or AND not in name:
        return (name,)
    return tuple(sorted({f"{COMPRESSED} {_scheme_of_group(group, stated)}" for group in groups}))


def _unnamed(stated: Fields) -> str:
    """What a checkpoint without `quant_method` is in: older ones of compressed-tensors have groups and no method."""
    return COMPRESSED if "config_groups" in stated else "quantization_config without quant_method"


def group_of(stated: Fields) -> int:
    """How many neighbouring weights share a scale, so that no rank may divide them; 1 where none do.

    Blocks of FP8, and groups of AWQ, GPTQ and compressed-tensors.
    """
    sizes = [stated.get("group_size"), stated.get("q_group_size"), stated.get("weight_block_size")]
    groups = _object(stated.get("config_groups")).values()
    for weights in (_object(_object(group).get("weights")) for group in groups):
        sizes += [weights.get("group_size"), weights.get("block_structure")]
    numbers = [size[-1] if isinstance(size, list) and size else size for size in sizes]
    return max((size for size in numbers if isinstance(size, int) and not isinstance(size, bool)), default=1)


def block_of(stated: Fields) -> int:
    """How many rows of a weight share a scale with their neighbours in a block; 1 without blocks."""
    groups = _object(stated.get("config_groups")).values()
    shapes = [stated.get("weight_block_size")]
    shapes += [_object(_object(group).get("weights")).get("block_structure") for group in groups]
    rows = [shape[0] for shape in shapes if isinstance(shape, list) and shape]
    return max((size for size in rows if isinstance(size, int) and not isinstance(size, bool)), default=1)


def _awq(stated: Fields) -> str:
    bits, layout = stated.get("bits", stated.get("w_bit")), str(stated.get("version") or AWQ_LAYOUT).lower()
    if layout not in AWQ_LAYOUTS:
        return f"awq in layout {layout}"
    return "awq" if bits == AWQ_BITS else f"awq of {bits} bits"


def _gptq(stated: Fields) -> str:
    layout = str(stated.get("checkpoint_format") or GPTQ_LAYOUTS[0]).lower()
    if layout not in GPTQ_LAYOUTS:
        return f"gptq in layout {layout}"
    own = {"bits": stated.get("bits"), "sym": stated.get("sym")}
    overrides = [_object(each) for key, each in _object(stated.get("dynamic")).items() if not key.startswith("-:")]
    for layers in (own, *({**own, **each} for each in overrides)):
        if layers["bits"] not in GPTQ_BITS or layers["sym"] is not True:
            return f"gptq of {layers['bits']} bits, {'symmetric' if layers['sym'] else 'asymmetric'}"
    return "gptq"


def _fp8(stated: Fields) -> str:
    block = stated.get("weight_block_size")
    if not block:
        return "fp8"
    return "fp8 in blocks" if block == BLOCK else f"fp8 in blocks of {block}"


def _scheme(stated: Fields) -> str:
    """The scheme that all groups of layers share; several are named together.

    vLLM 0.24.0 computes no sparse layers any more (compressed_tensors.py, _parse_sparsity_config).
    """
    groups, sparsity = stated.get("config_groups"), _object(stated.get("sparsity_config"))
    if sparsity.get("targets"):
        return f"with sparsity ({sparsity.get('format')})"
    if not isinstance(groups, Mapping) or not groups:
        return "without config_groups"
    return AND.join(sorted({_scheme_of_group(group, stated) for group in groups.values()}))


def _scheme_of_group(group: Any, stated: Fields) -> str:
    group = group if isinstance(group, Mapping) else {}
    weights, inputs = _object(group.get("weights")), _object(group.get("input_activations"))
    layout = str(group.get("format") or stated.get("format"))
    bits, kind = weights.get("num_bits"), weights.get("type")
    match (kind, bits, inputs.get("type"), inputs.get("num_bits")):
        case ("float", 8, None, None) | ("float", 8, "float", 8):
            return "fp8"
        case ("float", 4, None, None) | ("float", 4, "float", 4) if "nvfp4" in layout:
            return "nvfp4"
        case ("int", 8, "int", 8):
            return "int8"
        case ("int", 4 | 8, None, None) if layout == PACKED:
            return "weights"
    activations = f", activations {inputs.get('type')} of {inputs.get('num_bits')} bits" if inputs else ""
    return f"{layout} ({kind} of {bits} bits{activations})"


def _object(value: Any) -> Fields:
    return value if isinstance(value, Mapping) else {}
