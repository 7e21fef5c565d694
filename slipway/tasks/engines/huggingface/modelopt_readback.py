"""Reads back what ModelOpt wrote: the format that it states, its scales, and the weights that they encode.

Layouts are those of ModelOpt 0.47's unified Hugging Face export (modelopt/torch/export/quant_utils.py): a weight has
`weight_scale` and, as the format needs, `weight_scale_2`, `input_scale` and `pre_quant_scale`; a quantized attention
cache has `k_scale` and `v_scale` beside the weights of its keys and values.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from slipway.tasks.contracts.base import sha256_of
from slipway.tasks.contracts.errors import InputError, PipelineError
from slipway.tasks.engines.checkpoint.config_defaults import completed
from slipway.tasks.engines.checkpoint.config_reading import GENERATIONS, differences, readable
from slipway.tasks.engines.checkpoint.files import read_config
from slipway.tasks.engines.checkpoint.predicting_layers import lost_layers, without_predicting_layers
from slipway.tasks.engines.checkpoint.quant_algo import KV_QUANT_ALGO
from slipway.tasks.engines.preflight.hub_metadata import QUANTIZED_BY_MODELOPT

WEIGHT, SCALE, SCALE_2, PRE_SCALE = ".weight", ".weight_scale", ".weight_scale_2", ".pre_quant_scale"
BIAS = ".bias"
KV_SCALES = {".k_proj": ".k_scale", ".v_proj": ".v_scale"}
SCALES = (SCALE, SCALE_2, PRE_SCALE, ".input_scale", *KV_SCALES.values())
BLOCK_BYTES = 2**20
REPORT = "Report this with the checkpoint's config.json."


def read_back(folder: Path, algorithm: str, kv_cache: str) -> dict[str, Any]:
    """The checkpoint's quantization, after checking that it is the spec's and that every scale is a finite number.

    Raises:
        PipelineError: ModelOpt wrote something else.
        InputError: a scale is not a finite number above zero, because the source's weights are not.
    """
    stated = json.loads((folder / QUANTIZED_BY_MODELOPT).read_text(encoding="utf-8"))["quantization"]
    actual = (stated.get("quant_algo"), stated.get("kv_cache_quant_algo"))
    expected = (algorithm, KV_QUANT_ALGO[kv_cache])
    if actual != expected:
        raise PipelineError(
            f"quant_algo and kv_cache_quant_algo in {QUANTIZED_BY_MODELOPT} are not those of the spec",
            found=f"{actual[0]} and {actual[1]}",
            expected=f"{expected[0]} and {expected[1]}",
            remedy=REPORT,
        )
    names = set()
    for name, tensor in tensors_of(folder):
        names.add(name)
        if name.endswith(SCALES):
            _check_scale(name, tensor)
    scales = [name for name in names if name.endswith(SCALES)]
    if not scales:
        raise PipelineError(
            f"no tensor of the checkpoint has a scale: nothing was quantized to {algorithm}", remedy=REPORT
        )
    if kv_cache != "none":
        _check_cache_scales(names, kv_cache)
    return {**stated, "scales": len(scales)}


def check_same_model(source: Path, folder: Path) -> None:
    """Compare what a serving runtime reads from the source and from the quantized checkpoint.

    Every field of config.json except the format must read as in the source, with each version of transformers that
    can read the source; every layer of the source must be there, except those that predict further tokens; and a layer
    that has a bias in the source must keep it.

    Raises:
        PipelineError: a field differs, or a layer or a bias is missing.
    """
    config = without_predicting_layers(read_config(source))
    for generation in GENERATIONS:
        if differences(config, readable(config), generation):
            continue  # plan refused this model for images that have this version
        for name, expected, actual in differences(config, read_config(folder), generation)[:1]:
            raise PipelineError(
                f"transformers {generation} of a serving image reads a different {name} from config.json of the "
                "quantized checkpoint",
                found=repr(actual),
                expected=f"{expected!r}, as in the source",
                remedy="Report this with both files.",
            )
    kept, text = _names(folder), completed(config)
    if missing := lost_layers(_names(source), kept, text.get("num_hidden_layers") or 0):
        raise PipelineError(
            f"the quantized checkpoint lost {len(missing)} layers of the source, such as {missing[0]}",
            expected="all of them",
            remedy=REPORT,
        )
    lost = sorted(
        name
        for name in _names(source) - kept
        if name.endswith(BIAS) and name.removesuffix(BIAS) + WEIGHT in kept  # a layer without either is not served
    )
    if lost:
        raise PipelineError(
            f"the quantized checkpoint lost {len(lost)} biases, such as {lost[0]}, and a server would add none",
            expected="all biases of the source",
            remedy=REPORT,
        )


def digest_of(folder: Path) -> str:
    """Sha256 over the names and digests of all files: one value for the whole checkpoint."""
    return sha256_of({file.name: _sha256(file) for file in sorted(folder.iterdir()) if file.is_file()})


def tensors_of(folder: Path) -> Iterator[tuple[str, Any]]:
    """Every tensor of every weight file, one at a time."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                yield name, tensors.get_tensor(name)


def _names(folder: Path) -> set[str]:
    from safetensors import safe_open

    names: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="np") as tensors:
            names.update(tensors.keys())
    return names


def dequantized(folder: Path) -> dict[str, Any]:
    """The weights that the checkpoint encodes, in 32-bit floats, by the names of the unquantized architecture.

    Activations that a format rounds as well (FP8, W4A8, W8A8) are not rounded here: this is the weights' loss alone.
    """
    stored = dict(tensors_of(folder))
    return {
        name: _weight(name.removesuffix(WEIGHT), stored) if name.endswith(WEIGHT) else tensor.float()
        for name, tensor in stored.items()
        if not name.endswith(SCALES)
    }


def _weight(module: str, stored: Mapping[str, Any]) -> Any:
    """A weight as [out, in], stored in 8 bits with one scale per tensor or row, or in 4 bits with one per block.

    W4A8's `weight_scale_2` is neither: with it a kernel carries the same weight in FP8.
    """
    import torch

    weight, scale = stored[module + WEIGHT], stored.get(module + SCALE)
    if scale is None:
        return weight.float()
    if weight.dtype == torch.uint8 and scale.dtype == torch.float8_e4m3fn:
        raise InputError(
            f"{module} is in NVFP4, whose blocks are not read here", remedy="Measure such a checkpoint in its server."
        )
    if weight.dtype == torch.uint8:
        weight = _unpacked(weight)
        scale = scale.float().repeat_interleave(weight.shape[1] // scale.shape[1], dim=1)
    else:
        weight, scale = weight.float(), scale.float() if scale.dim() == 0 else scale.float()[:, None]
    value = weight * scale
    before = stored.get(module + PRE_SCALE)
    return value if before is None else value * before.float()


def _unpacked(packed: Any) -> Any:
    """Unpack bytes that hold two signed 4-bit numbers of neighbouring rows: [out / 2, in] becomes [out, in]."""
    import torch

    low, high = packed & 0x0F, packed >> 4
    pairs = torch.stack([low, high], dim=1).reshape(-1, packed.shape[1]).to(torch.int8)
    return torch.where(pairs > 7, pairs - 16, pairs).float()  # noqa: PLR2004 - two's complement of 4 bits


def _check_cache_scales(names: Collection[str], kv_cache: str) -> None:
    """Require one beside every weight of keys or values, and one of each where both share a weight of another name."""
    wanted = {
        name.removesuffix(WEIGHT) + scale
        for part, scale in KV_SCALES.items()
        for name in names
        if name.endswith(part + WEIGHT)
    }
    unseen = {f"*{scale}" for scale in KV_SCALES.values() if not any(name.endswith(scale) for name in names)}
    absent = sorted((wanted - set(names)) | unseen)
    if absent:
        raise PipelineError(
            f"the checkpoint lacks {len(absent)} scales of kv_cache {kv_cache}, such as {absent[0]}: its keys and "
            "values would be stored unscaled",
            remedy=REPORT,
        )


def _check_scale(name: str, tensor: Any) -> None:
    import torch

    values = tensor.float()
    if not bool(torch.isfinite(values).all()) or bool((values <= 0).any()):
        raise InputError(
            f"{name} holds scales that are not finite, because the source's weights or their activations are not",
            expected="finite numbers above zero",
            remedy="Choose another revision.",
        )


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as data:
        while block := data.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
