"""Post-training quantization by NVIDIA ModelOpt 0.47, exported as a unified Hugging Face checkpoint.

Runs in an environment of its own (requirements/modelopt.in), on a GPU or, except for nvfp4, on CPU. What is written is
read by TensorRT-LLM's LLM API and by vLLM: safetensors, config.json with `quantization_config`, hf_quant_config.json,
and the tokenizer's files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from tasks.contracts.errors import InputError
from tasks.contracts.spec import QuantizationFormat
from tasks.engines.announced import QUANTIZED_BY_MODELOPT
from tasks.engines.checkpoint import check_weights, copy_companions, read_config
from tasks.engines.cpus import available_cpus
from tasks.engines.modelopt_readback import digest_of, read_back
from tasks.engines.perplexity import compared, perplexity
from tasks.engines.phases import phase
from tasks.engines.transformers_model import first_line, load_model, load_tokenizer, logits_of, token_ids

Device = Literal["cpu", "cuda"]
KvCache = Literal["none", "fp8", "int8"]
MAX_TOKENS = 2048


@dataclass(frozen=True)
class Recipe:
    """How ModelOpt is told a format, and how it names the result."""

    config: str
    """Constant of modelopt.torch.quantization, made from modelopt_recipes/configs/ptq/presets/model."""
    algorithm: str
    """`quant_algo` in hf_quant_config.json (modelopt/torch/export/model_config.py)."""
    calibrates: bool = True
    """Whether its weights look at texts: to scale activations, or to choose scales of weights by what they meet."""
    runs_on_cpu: bool = True


RECIPES: dict[QuantizationFormat, Recipe] = {
    "fp8": Recipe("FP8_DEFAULT_CFG", "FP8"),
    "int8_wo": Recipe("INT8_WEIGHT_ONLY_CFG", "W8A16", calibrates=False),
    "int8_sq": Recipe("INT8_SMOOTHQUANT_CFG", "W8A8_SQ_PER_CHANNEL"),
    "int4_awq": Recipe("INT4_AWQ_CFG", "W4A16_AWQ"),
    "w4a8_awq": Recipe("W4A8_AWQ_BETA_CFG", "W4A8_AWQ"),
    # dynamic block quantization asserts CUDA tensors (modelopt/torch/quantization/tensor_quant.py)
    "nvfp4": Recipe("NVFP4_DEFAULT_CFG", "NVFP4", runs_on_cpu=False),
}
"""Formats by the one name that a spec has for each. A spec lets only a trt-engine ask for int8_sq: neither the LLM
API's PyTorch runtime nor vLLM serves it."""

KV_CACHE_CONFIG = "FP8_KV_CFG"

QUANTIZE_ERRORS = (AssertionError, KeyError, NotImplementedError, RuntimeError, ValueError)
"""What ModelOpt 0.47 raises for layers that a format does not fit, such as widths that its blocks do not divide."""


def quantize_with_modelopt(
    checkpoint: Path,
    format_: QuantizationFormat,
    texts: Sequence[str],
    out: Path,
    *,
    device: Device,
    kv_cache: KvCache = "none",
    max_tokens: int = MAX_TOKENS,
    perplexity_texts: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the checkpoint in another format to `out`, which exists and is empty, and read back what was written.

    Args:
        checkpoint: folder in Hugging Face layout, unquantized; it is only read.
        format_: the user's name of the format; `none` is no quantization, and refused.
        texts: what the format calibrates on, each cut to `max_tokens`; formats of weights alone look at none, unless
            `kv_cache` is fp8.
        out: owned by the caller.
        device: where the model computes; with several GPUs it is spread over all of them.
        kv_cache: fp8 adds scales of the attention cache.
        max_tokens: tokens kept of each text.
        perplexity_texts: texts to measure on, before and after; none: nothing is measured.

    Returns:
        `source_bytes`, `weights_bytes`, `digest` of all that was written, `quantization` as read back, `calibration`
        (texts used), `versions`; and where it was measured `perplexity`, of the model that computes in the format,
        `source_perplexity` and `perplexity_tokens`, None where not finite; `warnings`.

    Raises:
        InputError: the checkpoint is quantized already or damaged, the format does not fit it or the device, or texts
            are missing.
    """
    recipe = _recipe(format_, kv_cache, device, texts)
    config = read_config(checkpoint)
    _check_unquantized(checkpoint, config)
    source_bytes = check_weights(checkpoint)
    _check_device(device)
    with phase("loading the checkpoint"):
        model = load_model(checkpoint, dtype="auto", device_map="auto" if device == "cuda" else None)
        tokenizer = load_tokenizer(checkpoint)
    positions = config.get("max_position_embeddings") or max_tokens
    measured = token_ids(tokenizer, perplexity_texts, positions)
    with phase(f"measuring the source's perplexity over {len(measured)} texts"):
        source = perplexity(measured, logits_of(model)) if measured else None
    used = token_ids(tokenizer, texts if _looks_at_texts(recipe, kv_cache) else (), min(max_tokens, positions))
    with phase(f"quantizing to {format_}, calibrating on {len(used)} texts"):
        model = _quantized(model, recipe, kv_cache, used)
    with phase(f"measuring the {format_} model's perplexity over {len(measured)} texts"):
        after = perplexity(measured, logits_of(model)) if measured else None
    with phase("writing the checkpoint"):
        _export(model, out)
    _copy_tokenizer(checkpoint, out)
    return {
        "source_bytes": source_bytes,
        "weights_bytes": check_weights(out),
        "quantization": read_back(out, recipe.algorithm, kv_cache),
        "digest": digest_of(out),
        "calibration": len(used),
        "versions": {name: version(name) for name in ("nvidia-modelopt", "torch", "transformers")},
        **(compared(source, after) if source and after else {"warnings": []}),
    }


def _recipe(format_: QuantizationFormat, kv_cache: KvCache, device: Device, texts: Sequence[str]) -> Recipe:
    recipe = RECIPES.get(format_)
    if recipe is None:
        raise InputError(f"ModelOpt makes {', '.join(RECIPES)}; found format {format_}. Choose one of them.")
    if device == "cpu" and not recipe.runs_on_cpu:
        raise InputError(f"format {format_} is computed on GPUs alone, this is a CPU. Run quantize on a GPU.")
    if kv_cache == "int8":
        raise InputError("quantization.kv_cache int8 is a trt-engine's; a Hugging Face checkpoint has none or fp8.")
    if _looks_at_texts(recipe, kv_cache) and not texts:
        raise InputError(
            f"format {format_} with kv_cache {kv_cache} calibrates on texts, found none. "
            "Give quantization.calibration.dataset."
        )
    return recipe


def _looks_at_texts(recipe: Recipe, kv_cache: KvCache) -> bool:
    """Keys and values are known of texts alone, whatever the weights need."""
    return recipe.calibrates or kv_cache == "fp8"


def _check_unquantized(checkpoint: Path, config: dict[str, Any]) -> None:
    stated = config.get("quantization_config")
    if stated or (checkpoint / QUANTIZED_BY_MODELOPT).exists():
        named = (stated or {}).get("quant_algo") or (stated or {}).get("quant_method") or QUANTIZED_BY_MODELOPT
        raise InputError(
            f"the checkpoint is quantized already ({named}); expected 16-bit or 32-bit weights, for a second loss adds "
            "to the first. Choose format none to serve it as it is, or the unquantized model."
        )


def _check_device(device: Device) -> None:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device is visible; quantizing was asked for on one. Run this step on a GPU node.")
    torch.set_num_threads(available_cpus())


def _quantized(model: Any, recipe: Recipe, kv_cache: KvCache, sequences: Sequence[list[int]]) -> Any:
    import modelopt.torch.quantization as mtq
    import torch

    config: dict[str, Any] = dict(getattr(mtq, recipe.config))
    if kv_cache == "fp8":
        config["quant_cfg"] = [*config["quant_cfg"], *getattr(mtq, KV_CACHE_CONFIG)["quant_cfg"]]

    def calibrate(each: Any) -> None:
        with torch.inference_mode():
            for ids in sequences:
                each(torch.tensor([ids], device=each.device))

    try:
        return mtq.quantize(model, config, calibrate if sequences else None)
    except QUANTIZE_ERRORS as error:
        raise InputError(_does_not_fit(model, recipe, error)) from error


def _export(model: Any, out: Path) -> None:
    from modelopt.torch.export import export_hf_checkpoint

    try:
        export_hf_checkpoint(model, export_dir=out)
    except QUANTIZE_ERRORS as error:
        raise InputError(f"the result cannot be written: {first_line(error)}. Choose another format.") from error


def _copy_tokenizer(checkpoint: Path, out: Path) -> None:
    """The source's own files, and of those that the export wrote too the export's: its config.json says the format."""
    written = {file.name: file.read_bytes() for file in out.glob("*.json")}
    copy_companions(checkpoint, out)
    for name, data in written.items():
        (out / name).write_bytes(data)


def _does_not_fit(model: Any, recipe: Recipe, error: Exception) -> str:
    return (
        f"ModelOpt {version('nvidia-modelopt')} cannot make {recipe.algorithm} of {type(model).__name__}: "
        f"{first_line(error)}. Choose another format."
    )
