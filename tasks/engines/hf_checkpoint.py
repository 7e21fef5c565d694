"""What llmapi and vllm share: a checkpoint in Hugging Face layout, as it is or quantized by ModelOpt, is the engine."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tasks.contracts.artifact import Stage
from tasks.contracts.compatibility import FORMATS, check_served, image_of
from tasks.contracts.errors import InputError
from tasks.contracts.plan import Estimate, Source
from tasks.contracts.site import Site
from tasks.contracts.spec import EngineKind, QuantizationFormat, ReleaseSpec
from tasks.engines.announced import QUANTIZED_BY_MODELOPT, Documents, modelopt_algorithm, quantization_of
from tasks.engines.checkpoint import check_limits, check_weights, read_config, read_object
from tasks.engines.gpu_options import Option, check_digest, check_gpu_engine, check_options, gpu_of, kv_cache_fraction
from tasks.engines.lora import adapters_in
from tasks.engines.memory import BITS, GIB, bytes_on_gpus, weights_bytes
from tasks.engines.protocol import ENGINE_DESCRIPTION, ENGINE_FOLDER, REPOSITORY_ROOT
from tasks.engines.served_files import chat_template_in, link_adapters, link_all

log = logging.getLogger(__name__)

MODELOPT = "0.47.0"
"""As requirements/modelopt.in pins it."""

TOOLKIT_BYTES = 8 * GIB
"""Host memory of a process with CUDA, PyTorch and ModelOpt: an allowance."""

QUANT_ALGO: dict[QuantizationFormat, str] = {
    "int8_wo": "W8A16",
    "int4_awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
    "fp8": "FP8",
    "nvfp4": "NVFP4",
}
"""`quant_algo` of hf_quant_config.json by the user's format (ModelOpt 0.47, modelopt/torch/export/model_config.py)."""

FORMAT_OF_ALGO: dict[str, str] = {algorithm: name for name, algorithm in QUANT_ALGO.items()}

KV_CACHE_TYPE = {"none": "auto", "fp8": "fp8"}
"""Name of the cache's type in both runtimes, which take `auto` for what the checkpoint computes in."""


class CheckpointEngine:
    """What engines of both kinds do alike; see tasks/engines/protocol.py for what each method promises.

    A kind adds its options, the name of its runtime, and the values of its templates.
    """

    kind: EngineKind
    runtime: ClassVar[str]
    """Package that loads the checkpoint."""
    options: ClassVar[Mapping[str, Option]]

    def producers(self, spec: ReleaseSpec, site: Site, serving_image: str) -> dict[Stage, dict[str, str]]:
        """ModelOpt makes the checkpoint, whatever the GPU; the runtime only reads it."""
        runtime = {self.runtime: image_of(serving_image, self.kind).runtime}
        return {
            "quantize": modelopt_tools(spec, site),
            "build": runtime,
            "assemble": {"image": serving_image, **runtime},
        }

    def check(self, spec: ReleaseSpec, site: Site, source: Source, documents: Documents) -> None:
        """Refuse what ModelOpt cannot make, the runtime cannot load, or the GPUs cannot hold."""
        check_options(spec, self.options)
        if spec.quantization.format == "none":
            check_as_it_is(spec, site, source, documents)
        check_gpu_engine(spec, site, source, documents, self.check)
        check_modelopt(spec, site)

    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Of quantize, which holds the whole model in the host's memory unless it passes it on as it is."""
        return quantizing_estimate(spec, source)

    def quantize(
        self,
        checkpoint: Path,
        spec: ReleaseSpec,
        out: Path,
        *,
        calibration: Sequence[str],
        perplexity_texts: Sequence[str],
    ) -> dict[str, Any]:
        """Quantize with ModelOpt to a checkpoint in Hugging Face layout; format none passes it on as it is."""
        return quantized_checkpoint(checkpoint, spec, out, calibration, perplexity_texts)

    def build(self, checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
        """The checkpoint itself and what it says; the arguments of the runtime are the repository's."""
        return described_checkpoint(checkpoint, spec, out)


def modelopt_tools(spec: ReleaseSpec, site: Site) -> dict[str, str]:
    """What shapes the checkpoint: ModelOpt and its image, and nothing where files pass through unchanged."""
    if spec.quantization.format == "none":
        return {}
    return {"image": site.images.modelopt or "", "nvidia-modelopt": MODELOPT}


def check_modelopt(spec: ReleaseSpec, site: Site) -> None:
    """Refuse a format for which nobody has ModelOpt, and a cache whose scales nobody would find.

    Raises:
        InputError: the site names no image with ModelOpt, or one without its digest; or a KV cache format alone.
    """
    if spec.quantization.format == "none" and spec.quantization.kv_cache != "none":
        raise InputError(
            f"quantization.kv_cache {spec.quantization.kv_cache} with format none: the cache's scales come with "
            "quantized weights. Choose a format, or kv_cache none."
        )
    if spec.quantization.format != "none" and site.images.modelopt is None:
        raise InputError(
            f"quantization.format {spec.quantization.format} with {spec.engine.kind} is made by ModelOpt {MODELOPT}, "
            f"which site {site.name} names no image for: it does not fit into TensorRT-LLM's own. Add images.modelopt "
            "to the site file, or choose format none."
        )
    if spec.quantization.format != "none" and site.images.modelopt is not None:
        check_digest("images.modelopt", site.images.modelopt)


def check_as_it_is(spec: ReleaseSpec, site: Site, source: Source, documents: Documents) -> None:
    """Refuse a checkpoint that ModelOpt quantized to what the GPU has no arithmetic for; warn of other quantizers.

    Raises:
        InputError: the algorithm, which formats the GPU serves, and which GPUs the format needs.
    """
    product, gpu = gpu_of(spec, site)
    if algorithm := modelopt_algorithm(documents):
        field = f"{source.repo}@{source.revision} is quantized already ({algorithm}): format"
        value = FORMAT_OF_ALGO.get(algorithm, algorithm)
        check_served(field, value, FORMATS, spec.engine.kind, product, gpu.architecture)
    elif method := quantization_of(documents):
        log.warning(
            "%s@%s is quantized already (%s): plan knows ModelOpt's formats, not whether %s serves this one on %s",
            *(source.repo, source.revision, method, spec.engine.kind, product),
        )


def quantizing_estimate(spec: ReleaseSpec, source: Source) -> Estimate:
    """Of quantize: source and result lie on disk together, and in the host's memory; the source on GPUs too."""
    weights = weights_bytes(source)
    if spec.quantization.format == "none":
        return Estimate(download_bytes=source.size_bytes, scratch_bytes=2 * source.size_bytes, memory_bytes=GIB)
    result = int(weights * BITS[spec.quantization.format] / BITS["none"]) + weights // 8
    return Estimate(
        download_bytes=source.size_bytes,
        scratch_bytes=source.size_bytes + 2 * result,
        memory_bytes=TOOLKIT_BYTES + weights + result,
        gpu_bytes=bytes_on_gpus(spec, source),
    )


def quantized_checkpoint(
    checkpoint: Path, spec: ReleaseSpec, out: Path, calibration: Sequence[str], perplexity_texts: Sequence[str]
) -> dict[str, Any]:
    """See Engine.quantize. Adapters pass through: they are added to whatever format the model computes in."""
    config = read_config(checkpoint)
    check_limits(config, spec)
    source_bytes = check_weights(checkpoint)
    if spec.quantization.format == "none":
        link_all(checkpoint, out)
        link_adapters(checkpoint, out)
        return {"source_bytes": source_bytes, "weights_bytes": source_bytes}
    from tasks.engines.modelopt_ptq import MAX_TOKENS, quantize_with_modelopt

    asked = spec.quantization.calibration
    metrics = quantize_with_modelopt(
        checkpoint,
        spec.quantization.format,
        calibration,
        out,
        device="cuda",
        kv_cache=spec.quantization.kv_cache,
        max_tokens=asked.max_tokens if asked else MAX_TOKENS,
        perplexity_texts=perplexity_texts,
    )
    link_adapters(checkpoint, out)
    return metrics


def described_checkpoint(checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
    """See Engine.build: the same files, and what they say of themselves, compared with what was asked.

    Raises:
        InputError: the checkpoint is in another format than the asked one, or a chat template is wanted and missing.
    """
    config = read_config(checkpoint)
    check_limits(config, spec)
    check_weights(checkpoint)
    link_all(checkpoint, out)
    link_adapters(checkpoint, out)
    description = {
        "kind": spec.engine.kind,
        "architecture": config["architectures"][0],
        "max_position_embeddings": config.get("max_position_embeddings"),
        "chat_template": chat_template_in(checkpoint, spec),
        "quantization": _read_back(checkpoint, spec),
        "adapters": adapters_in(checkpoint, spec),
        "versions": {"nvidia-modelopt": MODELOPT} if spec.quantization.format != "none" else {},
        "limits": spec.engine.model_dump(include={"max_batch_size", "max_input_tokens", "max_sequence_tokens"}),
    }
    (out / ENGINE_DESCRIPTION).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
    return description


def adapter_ranks(engine_dir: Path) -> dict[str, int]:
    """Rank of each adapter that build found, by its name."""
    ranks: dict[str, int] = read_object(engine_dir / ENGINE_DESCRIPTION).get("adapters", {})
    return ranks


def checkpoint_values(engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
    """Template values of both kinds but `options`."""
    description = read_object(engine_dir / ENGINE_DESCRIPTION)
    return {
        "name": spec.name,
        "kind": spec.engine.kind,
        "engine_folder": ENGINE_FOLDER,
        "repository_root": REPOSITORY_ROOT,
        "chat_template": description["chat_template"],
        **description["limits"],
        "tensor_parallel": spec.engine.tensor_parallel,
        "pipeline_parallel": spec.engine.pipeline_parallel,
        "kv_cache_fraction": kv_cache_fraction(spec),
        "kv_cache": KV_CACHE_TYPE[spec.quantization.kv_cache],
        "gpus": list(spec.serving.gpus),
        "versions": description["versions"],
    }


def _read_back(checkpoint: Path, spec: ReleaseSpec) -> dict[str, Any]:
    """What hf_quant_config.json says; empty where ModelOpt made nothing."""
    asked = spec.quantization
    if asked.format == "none":
        return {}
    said = read_object(checkpoint / QUANTIZED_BY_MODELOPT).get("quantization", {})
    found = {name: said.get(name) for name in ("quant_algo", "kv_cache_quant_algo")}
    expected = {
        "quant_algo": QUANT_ALGO[asked.format],
        "kv_cache_quant_algo": "FP8" if asked.kv_cache == "fp8" else None,
    }
    for name, value in expected.items():
        if found[name] != value:
            raise InputError(
                f"{QUANTIZED_BY_MODELOPT}: quantization.{name} is {found[name]!r}, expected {value!r} for "
                f"{asked.format} with kv_cache {asked.kv_cache}. Run quantize again."
            )
    return found
