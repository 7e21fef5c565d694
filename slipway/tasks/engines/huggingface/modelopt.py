"""Post-training quantization by NVIDIA ModelOpt 0.47, exported as a unified Hugging Face checkpoint.

Runs in an environment of its own (requirements/modelopt.in), on a GPU or, except for nvfp4, on CPU. TensorRT-LLM's
LLM API and vLLM read the result: safetensors, config.json with `quantization_config`, hf_quant_config.json, and the
tokenizer's files.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from slipway.tasks.adapters.importing import importing
from slipway.tasks.contracts.engine.engine_kinds import QuantizationFormat
from slipway.tasks.contracts.errors import InputError, PipelineError
from slipway.tasks.engines.checkpoint.config_reading import readable
from slipway.tasks.engines.checkpoint.files import CONFIG, check_weights, copy_companions, read_config, read_object
from slipway.tasks.engines.checkpoint.foreign import first_line
from slipway.tasks.engines.checkpoint.perplexity import compared, perplexity
from slipway.tasks.engines.checkpoint.predicting_layers import without_predicting_layers
from slipway.tasks.engines.checkpoint.quant_algo import QUANT_ALGO
from slipway.tasks.engines.checkpoint.transformers_model import load_model, load_tokenizer, logits_of, token_ids
from slipway.tasks.engines.cpus import available_cpus
from slipway.tasks.engines.heartbeat import phase
from slipway.tasks.engines.huggingface.modelopt_readback import REPORT, check_same_model, digest_of, read_back
from slipway.tasks.engines.preflight.hub_metadata import QUANTIZED_BY_MODELOPT

Device = Literal["cpu", "cuda"]
KvCache = Literal["none", "fp8", "int8"]
MAX_TOKENS = 2048


@dataclass(frozen=True)
class Recipe:
    """ModelOpt's settings for a format."""

    config: str
    """Constant of modelopt.torch.quantization, made from modelopt_recipes/configs/ptq/presets/model."""
    runs_on_cpu: bool = True


RECIPES: dict[QuantizationFormat, Recipe] = {
    "fp8": Recipe("FP8_DEFAULT_CFG"),
    "int8_sq": Recipe("INT8_SMOOTHQUANT_CFG"),
    "int4_awq": Recipe("INT4_AWQ_CFG"),
    "w4a8_awq": Recipe("W4A8_AWQ_BETA_CFG"),
    # dynamic block quantization asserts CUDA tensors (modelopt/torch/quantization/tensor_quant.py)
    "nvfp4": Recipe("NVFP4_DEFAULT_CFG", runs_on_cpu=False),
}
"""Recipes by the spec's name of the format. Specs allow int8_sq only with a trt-engine: neither the LLM API's PyTorch
runtime nor vLLM serves it."""

KV_CACHE_CONFIG = "FP8_KV_CFG"

ADDED_BY_EXPORT = "quantization_config"
"""The only field of the export's config.json that is kept. The transformers of this environment wrote the others; it is
newer than a server's, and its fields lack some that an older one reads."""

GENERATION_CONFIG = "generation_config.json"

QUANTIZE_ERRORS = (AssertionError, KeyError, NotImplementedError, RuntimeError, ValueError)
"""Raised by ModelOpt 0.47 for layers that a format does not fit, such as widths that its blocks do not divide."""


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
        format_: the spec's name of the format; `none` is refused.
        texts: texts to calibrate on, each cut to `max_tokens`.
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
        InputError: the checkpoint is already quantized or damaged, the format does not fit it or the device, or texts
            are missing.
    """
    _check_recipe(format_, kv_cache, device, texts)
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
    used = token_ids(tokenizer, texts, min(max_tokens, positions))
    with phase(f"quantizing to {format_}, calibrating on {len(used)} texts"):
        model = _quantized(model, format_, kv_cache, used)
    with phase(f"measuring the {format_} model's perplexity over {len(measured)} texts"):
        after = perplexity(measured, logits_of(model), source) if measured else None
    with phase("writing the checkpoint"):
        _export(model, out)
    _restore_documents(checkpoint, config, out)
    check_same_model(checkpoint, out)
    return {
        "source_bytes": source_bytes,
        "weights_bytes": check_weights(out),
        "quantization": read_back(out, str(QUANT_ALGO[format_]), kv_cache),
        "digest": digest_of(out),
        "calibration": len(used),
        "versions": {name: version(name) for name in ("nvidia-modelopt", "torch", "transformers")},
        **(compared(source, after) if source and after else {"warnings": []}),
    }


def _check_recipe(format_: QuantizationFormat, kv_cache: KvCache, device: Device, texts: Sequence[str]) -> None:
    recipe = RECIPES.get(format_)
    if recipe is None:
        raise InputError(
            "ModelOpt does not make this format",
            found=format_,
            expected=f"one of {', '.join(RECIPES)}",
            remedy="Choose one of these.",
        )
    if device == "cpu" and not recipe.runs_on_cpu:
        raise InputError(f"format {format_} can only be computed on a GPU", remedy="Run quantize on a GPU node.")
    if kv_cache == "int8":
        raise InputError(
            "a Hugging Face checkpoint cannot hold scales of this quantization.kv_cache",
            found=kv_cache,
            expected="none or fp8",
            remedy="Choose one of these.",
        )
    if not texts:
        raise InputError(
            f"format {format_} with kv_cache {kv_cache} calibrates on texts, and there are none",
            remedy="Set quantization.calibration.dataset.",
        )


def _check_unquantized(checkpoint: Path, config: dict[str, Any]) -> None:
    stated = config.get("quantization_config")
    if stated or (checkpoint / QUANTIZED_BY_MODELOPT).exists():
        named = (stated or {}).get("quant_algo") or (stated or {}).get("quant_method") or QUANTIZED_BY_MODELOPT
        raise InputError(
            "the checkpoint is already quantized",
            found=named,
            expected="16-bit or 32-bit weights, because a second loss adds to the first",
            remedy="Choose format none to serve it as it is, or the unquantized model.",
        )


def _check_device(device: Device) -> None:
    with importing():
        import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device is visible to quantize on", remedy="Run this step on a GPU node.")
    torch.set_num_threads(available_cpus())


def _quantized(model: Any, format_: QuantizationFormat, kv_cache: KvCache, sequences: Sequence[list[int]]) -> Any:
    import modelopt.torch.quantization as mtq
    import torch

    config: dict[str, Any] = dict(getattr(mtq, RECIPES[format_].config))
    if kv_cache == "fp8":
        config["quant_cfg"] = [*config["quant_cfg"], *getattr(mtq, KV_CACHE_CONFIG)["quant_cfg"]]

    def calibrate(each: Any) -> None:
        with torch.inference_mode():
            for ids in sequences:
                each(torch.tensor([ids], device=each.device))

    try:
        return mtq.quantize(model, config, calibrate)
    except QUANTIZE_ERRORS as error:
        raise InputError(
            f"ModelOpt {version('nvidia-modelopt')} cannot make {QUANT_ALGO[format_]} of {type(model).__name__}",
            found=first_line(error),
            remedy="Choose another format.",
        ) from error


def _export(model: Any, out: Path) -> None:
    from modelopt.torch.export import export_hf_checkpoint

    try:
        export_hf_checkpoint(model, export_dir=out)
    except QUANTIZE_ERRORS as error:
        raise InputError(
            "the quantized checkpoint cannot be written", found=first_line(error), remedy="Choose another format."
        ) from error


def _restore_documents(checkpoint: Path, config: dict[str, Any], out: Path) -> None:
    """Restore the source's own files, and add the export's description of the format to its config.json."""
    exported = read_object(out / CONFIG)
    if ADDED_BY_EXPORT not in exported:
        raise PipelineError(
            f"{CONFIG} of ModelOpt's export has no {ADDED_BY_EXPORT}, so a server would read unquantized weights",
            expected="one that names the format",
            remedy=REPORT,
        )
    (out / GENERATION_CONFIG).unlink(missing_ok=True)  # the export writes one even if the source has none
    copy_companions(checkpoint, out)
    restored = {**without_predicting_layers(readable(config)), ADDED_BY_EXPORT: exported[ADDED_BY_EXPORT]}
    (out / CONFIG).write_text(json.dumps(restored, indent=2) + "\n", encoding="utf-8")
