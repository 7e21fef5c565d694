"""Reads a source's JSON documents as far as plan needs them, before a weight is downloaded."""

from collections.abc import Mapping
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import Source
from slipway.tasks.engines.checkpoint.config_defaults import language_model
from slipway.tasks.engines.checkpoint.files import CONFIG

TOKENIZER_CONFIG = "tokenizer_config.json"
QUANTIZED_BY_MODELOPT = "hf_quant_config.json"

PARTS = ("vision_config", "audio_config")
OF_SEVERAL_PARTS = "ForConditionalGeneration"
"""How the class of a model that reads more than text ends."""

STATED_AS = ("quantization_config", "compression_config")

Documents = Mapping[str, Mapping[str, Any]]
"""JSON objects by file name."""


def quantization_of(documents: Documents) -> str | None:
    """How the checkpoint is already quantized, by its own name for it; None when it is not.

    Transformers and vLLM write `quantization_config` into config.json, older releases of compressed-tensors
    `compression_config`, MLX `quantization`, and ModelOpt a file of its own beside it.
    """
    stated = stated_quantization(documents)
    if algorithm := modelopt_algorithm(documents):
        return algorithm
    if isinstance(stated, Mapping):
        return str(stated.get("quant_method") or "quantization_config")
    return QUANTIZED_BY_MODELOPT if QUANTIZED_BY_MODELOPT in documents else None


def stated_quantization(documents: Documents) -> Any:
    """How config.json, or the language model's part of one that has several, says that its weights are quantized.

    As vLLM reads it (vllm/transformers_utils/model_arch_config_convertor.py, get_quantization_config); and as MLX
    writes it, which no runtime here reads.
    """
    config = documents.get(CONFIG, {})
    for part in (config, language_model(config)):
        for name in STATED_AS:
            if part.get(name) is not None:
                return part[name]
        if _is_of_mlx(part.get("quantization")):
            return {"quant_method": "mlx", **part["quantization"]}
    return None


def _is_of_mlx(stated: Any) -> bool:
    return isinstance(stated, Mapping) and "bits" in stated and "group_size" in stated


def stated_cache(documents: Documents) -> str | None:
    """The format of the KV cache that a quantized checkpoint asks for; None where it asks for none.

    vLLM takes it with kv_cache_dtype auto (vllm/utils/torch_utils.py, get_kv_cache_quant_algo_string, and
    vllm/model_executor/layers/attention/attention.py, kv_cache_scheme), and so does TensorRT-LLM.
    """
    for stated in (stated_quantization(documents), documents.get(QUANTIZED_BY_MODELOPT, {}).get("quantization")):
        if not isinstance(stated, Mapping):
            continue
        inner = stated.get("quantization")
        for part in (stated, inner if isinstance(inner, Mapping) else {}):
            found = part.get("kv_cache_scheme") or part.get("kv_cache_quant_algo")
            if isinstance(found, Mapping):
                return f"{found.get('type')}{found.get('num_bits')}".replace("float", "fp")
            if isinstance(found, str):
                return found.lower()
    return None


def modelopt_algorithm(documents: Documents) -> str | None:
    """ModelOpt's name of the weights' format, which no other quantizer writes; None without one."""
    for stated in (stated_quantization(documents), documents.get(QUANTIZED_BY_MODELOPT, {}).get("quantization")):
        if isinstance(stated, Mapping) and stated.get("quant_algo"):
            return str(stated["quant_algo"])
    return None


def layers_algorithms(documents: Documents) -> set[str]:
    """ModelOpt's names of the formats of single layers, where a checkpoint has several."""
    for stated in (stated_quantization(documents), documents.get(QUANTIZED_BY_MODELOPT)):
        if not isinstance(stated, Mapping):
            continue
        inner = stated.get("quantization")
        layers = (inner if isinstance(inner, Mapping) else stated).get("quantized_layers")
        if isinstance(layers, Mapping):
            return {str(each.get("quant_algo")).upper() for each in layers.values() if isinstance(each, Mapping)}
    return set()


def check_not_quantized_twice(spec: ReleaseSpec, source: Source, documents: Documents) -> bool:
    """Refuse to quantize a checkpoint that is already quantized.

    Returns:
        Whether the checkpoint is quantized.

    Raises:
        InputError: it is, and the spec names another format.
    """
    method = quantization_of(documents)
    if method and spec.quantization.format != "none":
        raise InputError(
            f"{source.name} is already quantized",
            found=method,
            expected=f"16-bit weights for format {spec.quantization.format}, because a second loss adds to the first",
            remedy="Choose format none to serve it as it is, or the unquantized model.",
        )
    return method is not None


def check_causal(config: Mapping[str, Any], what: str, format_: str) -> None:
    """Refuse to quantize a model that transformers' AutoModelForCausalLM does not load as what it is.

    Models with several parts are of other classes (tests/contracts/causal_models.yaml): none for Mistral Small 3.1,
    the text part alone for Llama 4, and for Gemma 3 one whose other parts would be quantized too.

    Args:
        config: config.json.
        what: the source, for the message.
        format_: the spec's format.

    Raises:
        InputError: the class that the configuration names.
    """
    architecture = str((config.get("architectures") or ["none"])[0])
    parts = [name for name in PARTS if config.get(name)]
    if not parts and not architecture.endswith(OF_SEVERAL_PARTS):
        return
    raise InputError(
        f"{what} cannot be quantized to {format_}: AutoModelForCausalLM, with which it would be loaded, does not load "
        "a model of several parts as such",
        found=f"{architecture} with {', '.join(parts)}" if parts else architecture,
        expected="a causal language model alone",
        remedy="Choose format none with engine kind llmapi or vllm, a checkpoint that is already quantized, or a model "
        "that has text only.",
    )
