"""From a Hugging Face checkpoint to OpenVINO IR with compressed weights, and what that costs in perplexity."""

import logging
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.spec import QuantizationFormat, ReleaseSpec
from tasks.engines.checkpoint import check_limits, check_weights, copy_companions, read_config
from tasks.engines.cpus import available_cpus
from tasks.engines.openvino import KV_CACHE_PRECISION, MODEL
from tasks.engines.perplexity import Logits, Perplexity, perplexity
from tasks.engines.phases import phase

log = logging.getLogger(__name__)

TASK = "text-generation-with-past"
INT4_GROUP_SIZE = 128
"""Weights that share a scale; NNCF lowers it, down to 32, for layers whose width it does not divide, and says so."""

LOAD_ERRORS = (OSError, ValueError, KeyError, RuntimeError, ImportError)
"""What transformers 5.5 raises for unknown architectures, foreign code, wrong shapes and damaged files."""

EXPORT_ERRORS = (ValueError, KeyError, NotImplementedError)
"""What optimum-intel 2.2 raises for architectures it cannot trace."""


def quantize(checkpoint: Path, spec: ReleaseSpec, out: Path, texts: Sequence[str]) -> dict[str, Any]:
    """See Engine.quantize."""
    import openvino

    check_limits(read_config(checkpoint), spec)
    source_bytes = check_weights(checkpoint)
    with phase("loading the checkpoint"):
        model = _load(checkpoint)
        sequences = _token_ids(checkpoint, texts, model.config)
    with phase(f"measuring the source's perplexity over {len(sequences)} texts"):
        source = perplexity(sequences, _torch_logits(model)) if sequences else None
    with TemporaryDirectory(dir=out.parent) as exported:
        with phase(f"tracing {type(model).__name__} to OpenVINO IR"):
            _trace(model, Path(exported))
        del model  # the compression needs the room
        with phase(f"compressing weights to {spec.quantization.format}"):
            compressed = _compressed(openvino.Core().read_model(Path(exported) / MODEL), spec.quantization.format)
        compressed.set_rt_info(
            KV_CACHE_PRECISION[spec.quantization.kv_cache], ["runtime_options", "KV_CACHE_PRECISION"]
        )
        openvino.save_model(compressed, out / MODEL, compress_to_fp16=spec.quantization.format == "none")
        del compressed  # it maps the traced files, which are about to go
    copy_companions(checkpoint, out)
    metrics: dict[str, Any] = {"source_bytes": source_bytes, "weights_bytes": _weights_bytes(out)}
    if source is not None:
        with phase("measuring the compressed model's perplexity"):
            metrics |= _compared(source, perplexity(sequences, _openvino_logits(out)))
    return metrics


def _load(checkpoint: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    torch.set_num_threads(available_cpus())
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    auto: Any = AutoModelForCausalLM
    try:
        model, loading = auto.from_pretrained(
            checkpoint,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except LOAD_ERRORS as error:
        raise InputError(
            f"transformers {version('transformers')} cannot load the checkpoint: {_first_line(error)}. "
            "Choose a revision or an architecture that it can."
        ) from error
    if missing := sorted(loading["missing_keys"]):
        raise InputError(
            f"the checkpoint lacks {len(missing)} tensors of its architecture, such as {missing[0]}. "
            "Choose a complete revision."
        )
    return model.eval()


def _trace(model: Any, out: Path) -> None:
    from optimum.exporters.openvino.convert import export_from_model

    try:
        export_from_model(model, out, task=TASK, stateful=True)
    except EXPORT_ERRORS as error:
        raise InputError(
            f"optimum-intel {version('optimum-intel')} cannot trace {type(model).__name__}: {_first_line(error)}. "
            "Choose an architecture that it supports."
        ) from error


def _compressed(model: Any, quantization: QuantizationFormat) -> Any:
    if quantization == "none":
        return model
    import nncf

    if quantization == "int8":
        return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
    return nncf.compress_weights(
        model,
        mode=nncf.CompressWeightsMode.INT4_ASYM,
        group_size=INT4_GROUP_SIZE,
        advanced_parameters=nncf.AdvancedCompressionParameters(
            group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
        ),
    )


def _token_ids(checkpoint: Path, texts: Sequence[str], config: Any) -> list[list[int]]:
    """Each text as the model's tokenizer sees it, special tokens included, cut to the model's context."""
    if not texts:
        return []
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
    except LOAD_ERRORS as error:
        raise InputError(f"the tokenizer cannot be loaded: {_first_line(error)}. Choose another revision.") from error
    limit = getattr(config, "max_position_embeddings", None)
    return [list(tokenizer(text)["input_ids"])[:limit] for text in texts]


def _torch_logits(model: Any) -> Logits:
    import torch

    def logits(ids: list[int]) -> Any:
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0].numpy()

    return logits


def _openvino_logits(folder: Path) -> Logits:
    """Logits of the compressed model in the runtime that serves it."""
    import numpy as np
    import openvino

    compiled = openvino.Core().compile_model(folder / MODEL, "CPU", {"INFERENCE_NUM_THREADS": available_cpus()})
    request = compiled.create_infer_request()
    names = {name for port in compiled.inputs for name in port.get_names()}

    def logits(ids: list[int]) -> Any:
        request.reset_state()
        inputs = {
            "input_ids": np.array([ids], dtype=np.int64),
            "attention_mask": np.ones((1, len(ids)), dtype=np.int64),
            "position_ids": np.arange(len(ids), dtype=np.int64)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        request.infer({name: value for name, value in inputs.items() if name in names})
        return request.get_tensor("logits").data[0].copy()

    return logits


def _compared(source: Perplexity, compressed: Perplexity) -> dict[str, Any]:
    warnings = [
        f"perplexity of the {what} model is not finite over {measured.tokens} tokens"
        for what, measured in (("source", source), ("compressed", compressed))
        if measured.value is None
    ]
    for warning in warnings:
        log.warning(warning)
    return {
        "perplexity": compressed.value,
        "source_perplexity": source.value,
        "perplexity_tokens": compressed.tokens,
        "warnings": warnings,
    }


def _weights_bytes(folder: Path) -> int:
    return (folder / MODEL).with_suffix(".bin").stat().st_size


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160].rstrip(".")
