"""What ModelOpt wrote, read back: what it says, whether its scales are numbers, and the weights that it stands for.

Layouts are those of ModelOpt 0.47's unified Hugging Face export (modelopt/torch/export/quant_utils.py): beside a weight
lie `weight_scale`, and as the format needs `weight_scale_2`, `input_scale` and `pre_quant_scale`; a quantized attention
cache has `k_scale` and `v_scale` beside the weights of its keys and values.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.contracts.base import sha256_of
from tasks.contracts.errors import InputError, PipelineError
from tasks.engines.announced import QUANTIZED_BY_MODELOPT

WEIGHT, SCALE, SCALE_2, PRE_SCALE = ".weight", ".weight_scale", ".weight_scale_2", ".pre_quant_scale"
KV_SCALES = {".k_proj": ".k_scale", ".v_proj": ".v_scale"}
SCALES = (SCALE, SCALE_2, PRE_SCALE, ".input_scale", *KV_SCALES.values())
KV_CACHE_ALGORITHMS = {"none": None, "fp8": "FP8"}
BLOCK_BYTES = 2**20


def read_back(folder: Path, algorithm: str, kv_cache: str) -> dict[str, Any]:
    """What the checkpoint says of its quantization, once it is what was asked and every scale is a finite number.

    Raises:
        PipelineError: ModelOpt wrote something else than was asked.
        InputError: a scale is no finite number above zero: the source's weights are not numbers either.
    """
    said = json.loads((folder / QUANTIZED_BY_MODELOPT).read_text(encoding="utf-8"))["quantization"]
    found = (said.get("quant_algo"), said.get("kv_cache_quant_algo"))
    asked = (algorithm, KV_CACHE_ALGORITHMS[kv_cache])
    if found != asked:
        raise PipelineError(
            f"{QUANTIZED_BY_MODELOPT} says quant_algo {found[0]} and kv_cache_quant_algo {found[1]}, asked were "
            f"{asked[0]} and {asked[1]}. Report this with the checkpoint's config.json."
        )
    names = set()
    for name, tensor in tensors_of(folder):
        names.add(name)
        if name.endswith(SCALES):
            _check_scale(name, tensor)
    scales = [name for name in names if name.endswith(SCALES)]
    if not scales:
        raise PipelineError(f"no tensor of the checkpoint has a scale: nothing was quantized to {algorithm}.")
    if kv_cache != "none":
        _check_cache_scales(names, kv_cache)
    return {**said, "scales": len(scales)}


def digest_of(folder: Path) -> str:
    """Sha256 over the names and digests of all files: one value for the whole checkpoint."""
    return sha256_of({file.name: _sha256(file) for file in sorted(folder.iterdir()) if file.is_file()})


def tensors_of(folder: Path) -> Iterator[tuple[str, Any]]:
    """Every tensor of every weight file, one at a time."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                yield name, tensors.get_tensor(name)


def dequantized(folder: Path) -> dict[str, Any]:
    """The weights that the checkpoint stands for, in 32-bit floats, by the names of the unquantized architecture.

    Activations that a format rounds as well (FP8, W4A8, W8A8) are not rounded here: this is the weights' loss alone.
    """
    stored = dict(tensors_of(folder))
    return {
        name: _weight(name.removesuffix(WEIGHT), stored) if name.endswith(WEIGHT) else tensor.float()
        for name, tensor in stored.items()
        if not name.endswith(SCALES)
    }


def _weight(module: str, stored: Mapping[str, Any]) -> Any:
    """[out, in], of a weight that may be 8-bit with one scale per tensor or row, or 4-bit with one per block.

    W4A8's `weight_scale_2` is none of them: by it a kernel carries the same weight in FP8.
    """
    import torch

    weight, scale = stored[module + WEIGHT], stored.get(module + SCALE)
    if scale is None:
        return weight.float()
    if weight.dtype == torch.uint8 and scale.dtype == torch.float8_e4m3fn:
        raise InputError(
            f"{module} is in NVFP4, whose blocks are not read here. Measure such a checkpoint in its server."
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
    """From two signed 4-bit numbers of neighbouring rows in a byte, [out / 2, in], to [out, in]."""
    import torch

    low, high = packed & 0x0F, packed >> 4
    pairs = torch.stack([low, high], dim=1).reshape(-1, packed.shape[1]).to(torch.int8)
    return torch.where(pairs > 7, pairs - 16, pairs).float()  # noqa: PLR2004 - two's complement of 4 bits


def _check_cache_scales(names: Collection[str], kv_cache: str) -> None:
    """Beside every weight of keys or values; and one of each where a model keeps both in a weight of another name."""
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
            f"kv_cache {kv_cache} was asked, and the checkpoint has no {absent[0]} (of {len(absent)}): its keys and "
            "values would be stored unscaled. Report this with the checkpoint's config.json."
        )


def _check_scale(name: str, tensor: Any) -> None:
    import torch

    values = tensor.float()
    if not bool(torch.isfinite(values).all()) or bool((values <= 0).any()):
        raise InputError(
            f"{name} holds values that are no finite numbers above zero: the source's weights or what they make of the "
            "calibration texts are not finite. Choose another revision."
        )


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as data:
        while block := data.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
