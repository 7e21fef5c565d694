"""Turns a Hugging Face checkpoint into OpenVINO IR with compressed weights; measures the cost in perplexity."""

import gc
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from slipway.tasks.adapters.importing import importing
from slipway.tasks.contracts.engine.engine_kinds import QuantizationFormat
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.files import check_weights, copy_companions, read_config
from slipway.tasks.engines.checkpoint.foreign import refusing
from slipway.tasks.engines.checkpoint.perplexity import compared, perplexity
from slipway.tasks.engines.checkpoint.positions import check_limits
from slipway.tasks.engines.checkpoint.transformers_model import load_model, load_tokenizer, logits_of, token_ids
from slipway.tasks.engines.cpus import available_cpus
from slipway.tasks.engines.heartbeat import phase
from slipway.tasks.engines.openvino.families import LIMIT_LIFTED
from slipway.tasks.engines.openvino.ir import KV_CACHE_PRECISION, MODEL
from slipway.tasks.engines.openvino.one_pass import one_pass

TOOLKITS = ("optimum.exporters.openvino.convert", "nncf")
TASK = "text-generation-with-past"
INT4_GROUP_SIZE = 128
"""Weights that share a scale; NNCF lowers it, down to 32, for layers whose width it does not divide, and says so."""


def quantize(checkpoint: Path, spec: ReleaseSpec, out: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Trace the checkpoint and compress its weights; `texts` are those to measure perplexity on."""
    check_limits(spec, read_config(checkpoint))
    source_bytes = check_weights(checkpoint)
    with importing():  # before the model is loaded, which would never be collected otherwise
        import openvino
        import torch

        for toolkit in TOOLKITS:
            import_module(toolkit)
    with phase("loading the checkpoint"):
        torch.set_num_threads(available_cpus())
        model = load_model(checkpoint, dtype=torch.float32)
        context = getattr(model.config, "max_position_embeddings", None)
        sequences = token_ids(load_tokenizer(checkpoint), texts, context) if texts else []
    with TemporaryDirectory(dir=out.parent) as exported:
        # a rotary embedding that was computed once shares tensors, which a traced module may not
        with phase(f"tracing {type(model).__name__} to OpenVINO IR"):
            trace(model, Path(exported))
        with phase(f"measuring the source's perplexity over {len(sequences)} texts"):
            source = perplexity(sequences, logits_of(model)) if sequences else None
        del model  # the compression needs the memory
        gc.collect()  # tracing leaves it in a reference cycle
        with phase(f"compressing weights to {spec.quantization.format}"):
            compressed = _compressed(openvino.Core().read_model(Path(exported) / MODEL), spec.quantization.format)
        compressed.set_rt_info(
            KV_CACHE_PRECISION[spec.quantization.kv_cache], ["runtime_options", "KV_CACHE_PRECISION"]
        )
        openvino.save_model(compressed, out / MODEL, compress_to_fp16=spec.quantization.format == "none")
        del compressed  # it maps the traced files, which are about to be deleted
    copy_companions(checkpoint, out)
    metrics: dict[str, Any] = {"source_bytes": source_bytes, "weights_bytes": _weights_bytes(out)}
    if source is not None:
        with phase("measuring the compressed model's perplexity"):
            metrics |= compared(source, perplexity(sequences, one_pass(out), source))
    return metrics


def trace(model: Any, out: Path) -> None:
    """Write a model of transformers as IR in 32-bit floats to `out`.

    Raises:
        InputError: optimum-intel cannot trace it.
    """
    from optimum.exporters.openvino.convert import export_from_model

    what = f"optimum-intel {version('optimum-intel')} cannot trace {type(model).__name__}"
    with refusing(what, "Choose an architecture that it supports."):
        export_from_model(model, out, task=TASK, stateful=True, custom_export_configs=_export_configs(model.config))


def _export_configs(config: Any) -> dict[str, Any] | None:
    """An export configuration without its limit of transformers, for the models that are known not to need it."""
    if config.model_type not in LIMIT_LIFTED:
        return None
    from optimum.exporters.tasks import TasksManager

    constructor = TasksManager.get_exporter_config_constructor(
        exporter="openvino", task=TASK, model_type=config.model_type, library_name="transformers"
    )
    lifted = constructor(config, use_past=True, use_past_in_inputs=True)
    lifted.MAX_TRANSFORMERS_VERSION = None
    return {"model": lifted}


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


def _weights_bytes(folder: Path) -> int:
    return (folder / MODEL).with_suffix(".bin").stat().st_size
