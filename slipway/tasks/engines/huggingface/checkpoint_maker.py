"""Makes a checkpoint in Hugging Face layout, as it is or quantized by ModelOpt: the engine of llmapi and vllm."""

import json
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import DRAFT_FOLDER
from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.checkpoint.files import check_weights, read_config, read_object
from slipway.tasks.engines.checkpoint.positions import check_limits
from slipway.tasks.engines.checkpoint.quant_algo import KV_QUANT_ALGO, QUANT_ALGO
from slipway.tasks.engines.checkpoint.tied_head import check_tied_head
from slipway.tasks.engines.huggingface.checkpoint_planner import MODELOPT
from slipway.tasks.engines.loras import base_of, check_lora_weights, lora_modules, loras_in
from slipway.tasks.engines.passthrough import chat_template_in, link_all, link_draft, link_loras, link_readable
from slipway.tasks.engines.preflight.engine_options import kv_cache_fraction
from slipway.tasks.engines.preflight.hub_metadata import QUANTIZED_BY_MODELOPT
from slipway.tasks.engines.protocol import EngineMaker
from slipway.tasks.serving.rendered.paths import ENGINE_DESCRIPTION, ENGINE_FOLDER

KV_CACHE_TYPE = {"none": "auto", "fp8": "fp8"}
"""Name of the cache's type in both runtimes; `auto` is the type that the checkpoint computes in."""


class CheckpointMaker(EngineMaker):
    """Base of both makers; a kind adds the values of its templates."""

    names_modules: ClassVar[bool] = False
    """Whether the runtime must be told which layers adapters change."""

    @override
    def quantize(self, checkpoint: Path, spec: ReleaseSpec, out: Path, texts: Texts) -> dict[str, Any]:
        """Quantize with ModelOpt, or pass the checkpoint on as it is; so pass adapters and a draft always."""
        config = read_config(checkpoint)
        check_limits(spec, config)
        source_bytes = check_weights(checkpoint)
        check_tied_head(checkpoint, config)
        check_lora_weights(checkpoint, spec)
        if not spec.changes_weights:
            link_all(checkpoint, out)
            link_loras(checkpoint, out)
            link_draft(checkpoint, out)
            return {"source_bytes": source_bytes, "weights_bytes": source_bytes}
        from slipway.tasks.engines.huggingface.modelopt import MAX_TOKENS, quantize_with_modelopt

        calibration = spec.quantization.calibration
        metrics = quantize_with_modelopt(
            checkpoint,
            spec.quantization.format,
            texts.calibration,
            out,
            device="cuda",
            kv_cache=spec.quantization.kv_cache,
            max_tokens=calibration.max_tokens if calibration else MAX_TOKENS,
            perplexity_texts=texts.perplexity,
        )
        link_loras(checkpoint, out)
        link_draft(checkpoint, out)
        return metrics

    @override
    def build(self, checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
        """Pass the checkpoint on with a description of it; the runtime's arguments are in the repository."""
        config = read_config(checkpoint)
        check_limits(spec, config)
        check_weights(checkpoint)
        link_readable(checkpoint, out, spec.engine.overrides)
        link_loras(checkpoint, out)
        link_draft(checkpoint, out)
        if spec.engine.draft is not None:
            check_weights(out / DRAFT_FOLDER)
        description = {
            "kind": spec.engine.kind,
            "architecture": config["architectures"][0],
            "max_position_embeddings": read_config(out).get("max_position_embeddings"),
            "chat_template": chat_template_in(checkpoint, spec),
            "quantization": _read_back(checkpoint, spec),
            "adapters": loras_in(checkpoint, spec),
            **({"base": base_of(checkpoint)._asdict()} if spec.engine.room_rank else {}),
            **({"adapter_modules": lora_modules(checkpoint, spec)} if self.names_modules and spec.engine.lora else {}),
            "versions": {"nvidia-modelopt": MODELOPT} if spec.changes_weights else {},
            "limits": spec.engine.model_dump(include={"max_batch_size", "max_input_tokens", "max_sequence_tokens"}),
        }
        (out / ENGINE_DESCRIPTION).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
        return description


def lora_ranks(engine_dir: Path) -> dict[str, int]:
    """Each adapter's rank by name, as build recorded it."""
    ranks: dict[str, int] = read_object(engine_dir / ENGINE_DESCRIPTION).get("adapters", {})
    return ranks


def checkpoint_values(engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
    """Template values that both kinds have in common."""
    description = read_object(engine_dir / ENGINE_DESCRIPTION)
    return {
        "name": spec.name,
        "kind": spec.engine.kind,
        "engine_folder": ENGINE_FOLDER,
        "chat_template": description["chat_template"],
        "chat_template_kwargs": spec.engine.chat_template_kwargs,
        **description["limits"],
        "tensor_parallel": spec.engine.tensor_parallel,
        "pipeline_parallel": spec.engine.pipeline_parallel,
        "kv_cache_fraction": kv_cache_fraction(spec),
        "kv_cache": KV_CACHE_TYPE[spec.quantization.kv_cache],
        "gpus": list(spec.serving.gpus),
        "versions": description["versions"],
    }


def _read_back(checkpoint: Path, spec: ReleaseSpec) -> dict[str, Any]:
    """Algorithms that hf_quant_config.json names; empty where nothing was quantized."""
    quantization = spec.quantization
    if not spec.changes_weights:
        return {}
    stated = read_object(checkpoint / QUANTIZED_BY_MODELOPT).get("quantization", {})
    actual = {name: stated.get(name) for name in ("quant_algo", "kv_cache_quant_algo")}
    expected = {
        "quant_algo": QUANT_ALGO[quantization.format],
        "kv_cache_quant_algo": KV_QUANT_ALGO[quantization.kv_cache],
    }
    for name, value in expected.items():
        if actual[name] != value:
            raise InputError(
                f"{QUANTIZED_BY_MODELOPT}: quantization.{name} is not that of {quantization.format} with kv_cache "
                f"{quantization.kv_cache}",
                found=repr(actual[name]),
                expected=repr(value),
                remedy="Run quantize again.",
            )
    return actual
