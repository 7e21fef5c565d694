"""Engine kind `trt-engine` in plan: what can be quantized, built and held by the GPUs."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from slipway.tasks.contracts.engine.engine_kinds import QuantizationFormat
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import Stage
from slipway.tasks.contracts.stored.plan import Estimate, Source
from slipway.tasks.engines.checkpoint.files import CONFIG, check_files, check_layout
from slipway.tasks.engines.preflight.engine_options import (
    CHUNKED_PREFILL,
    GUIDED_DECODING,
    check_host_cache,
    check_options,
)
from slipway.tasks.engines.preflight.experts import experts_of
from slipway.tasks.engines.preflight.gpu import check_gpu_engine, memory_warnings
from slipway.tasks.engines.preflight.hub_metadata import TOKENIZER_CONFIG, Documents, check_causal, quantization_of
from slipway.tasks.engines.preflight.known_classes import check_generates, check_tokenizer_class
from slipway.tasks.engines.preflight.loras import check_loras
from slipway.tasks.engines.preflight.memory_fit import BITS, GIB, bytes_on_gpus, weights_bytes
from slipway.tasks.engines.protocol import EnginePlanner
from slipway.tasks.engines.trtllm.commands import is_converted, paged_attention
from slipway.tasks.engines.trtllm.families import architecture_of, check_converted, check_quantized

TOOLKIT_BYTES = 8 * GIB
"""Host memory of a process with CUDA, PyTorch and TensorRT-LLM, and of what TensorRT holds while it builds: an
allowance."""

FORMATS_OF_EXPERTS = frozenset({"none", "int8_wo", "int4_wo", "fp8"})
"""Formats in which ModelOpt exports experts without a warning: weight-only ones are exported unquantized
(modelopt/torch/export/layer_utils.py, build_decoder_config, at 0.37.0, which TensorRT-LLM 1.2 requires)."""

QUANTIZED_BY_BUILDER: frozenset[QuantizationFormat] = frozenset({"int8_wo", "int4_wo"})
"""Formats whose checkpoint has weights in full precision: quantize.py only names the algorithm in its config.json
(tensorrt_llm/quantization/quantize_by_modelopt.py @ 042c510d), and the builder quantizes what it loads
(tensorrt_llm/models/modeling_utils.py, preprocess_weights, @ 01ea6d79). So it holds both."""


class TrtPlanner(EnginePlanner):
    """Plans engines that are compiled for one GPU product."""

    @override
    def check(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        spec = release.spec
        check_options(spec)
        check_host_cache(spec, shares_cache=paged_attention(spec))
        _check_chunked_prefill(spec)
        check_files(source)
        if method := quantization_of(documents):
            raise InputError(
                f"{source.name} is already quantized",
                found=method,
                expected="16-bit weights, which trt-engine quantizes itself",
                remedy="Choose the unquantized model, or the engine kinds llmapi or vllm, which serve it as it is.",
            )
        if spec.engine.expert_parallel > 1 and not is_converted(spec):
            raise InputError(
                "engine.expert_parallel needs weights that keep their precision: TensorRT-LLM's quantize.py splits "
                "every expert over all ranks, and has no flag for anything else",
                found=f"format {spec.quantization.format} with kv_cache {spec.quantization.kv_cache}",
                remedy="Choose format none and kv_cache none, remove expert_parallel, or choose engine kind llmapi.",
            )
        check_generates(documents[CONFIG], f"{source.name}")
        _check_architecture(spec, source, documents[CONFIG])
        if not is_converted(spec) or GUIDED_DECODING in spec.engine.options:
            what = f"{source.name}"
            check_tokenizer_class(documents.get(TOKENIZER_CONFIG, {}), release.runtime, what)
        check_loras(spec, documents)
        check_gpu_engine(release, source, documents, self.check)
        if spec.gate.quality is not None and spec.gate.quality.perplexity is not None:
            raise InputError(
                "gate.quality.perplexity cannot be measured: trt-engine has no logits before it is served",
                remedy="Remove it; gate.quality.dataset measures answers of the release itself.",
            )

    @override
    def warnings(self, release: ResolvedRelease, source: Source, documents: Documents) -> tuple[str, ...]:
        warnings, format_ = memory_warnings(release, source, documents), release.spec.quantization.format
        if not experts_of(documents[CONFIG]) or format_ in FORMATS_OF_EXPERTS:
            return warnings
        warned = f"ModelOpt, which quantize.py calls, warns that TensorRT-LLM may not support them in {format_}"
        return (*warnings, f"{source.repo} has experts: {warned}")

    @override
    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Estimate quantize and build, whose pods have the same shape.

        Disk holds source and checkpoint together, and the checkpoint passes through the host's memory. The host reads
        and splits weights that keep their precision: source and one copy. The source of others is on GPUs.
        """
        weights, allowance = weights_bytes(source), weights_bytes(source) // 8
        quantized = int(weights * BITS[spec.quantization.format] / BITS["none"]) + allowance
        checkpoint, held = quantized, quantized
        if is_converted(spec):
            held = 2 * weights
        elif spec.quantization.format in QUANTIZED_BY_BUILDER:
            checkpoint = weights + allowance
            held = checkpoint + quantized
        return Estimate(
            download_bytes=source.size_bytes,
            scratch_bytes=source.size_bytes + 2 * checkpoint,
            memory_bytes=TOOLKIT_BYTES + held,
            gpu_bytes=bytes_on_gpus(spec, source),
        )

    @override
    def producers(self, release: ResolvedRelease) -> dict[Stage, dict[str, str]]:
        """Image, TensorRT-LLM, TensorRT and GPU architecture; and the ranks, over which quantize splits weights."""
        engine = release.spec.engine
        tools = {
            "image": release.engine_image,
            "tensorrt_llm": release.runtime.runtime,
            "tensorrt": release.runtime.tensorrt or "",
            "gpu_architecture": release.gpu.facts.architecture,
            "ranks": f"tp{engine.tensor_parallel} pp{engine.pipeline_parallel}"
            + (f" ep{engine.expert_parallel}" if engine.expert_parallel > 1 else ""),
        }
        return {"quantize": tools, "build": tools, "assemble": {"image": release.engine_image}}


def _check_architecture(spec: ReleaseSpec, source: Source, config: Mapping[str, Any]) -> None:
    """Refuse a model that none of TensorRT-LLM's scripts makes a checkpoint of.

    Raises:
        InputError: as check_converted, check_causal and check_quantized.
    """
    architecture, quantization = architecture_of(config), spec.quantization
    if is_converted(spec):
        check_converted(architecture, spec.engine)
        return
    check_layout(source)
    made = quantization.format if quantization.format != "none" else f"kv_cache {quantization.kv_cache}"
    check_causal(config, f"{source.name}", made)
    check_quantized(architecture, made)


def _check_chunked_prefill(spec: ReleaseSpec) -> None:
    if spec.engine.options.get(CHUNKED_PREFILL) is True and not paged_attention(spec):
        raise InputError(
            f"engine.options.{CHUNKED_PREFILL} needs attention over a paged cache, which TensorRT-LLM does not build "
            "for this format and cache",
            found=f"format {spec.quantization.format}, kv_cache {spec.quantization.kv_cache}",
            remedy="Remove it, or choose kv_cache none.",
        )
