"""Plans a checkpoint in Hugging Face layout that a runtime loads as it is, or as ModelOpt quantized it."""

import logging
from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from tasks.contracts.artifact import Stage
from tasks.contracts.errors import InputError
from tasks.contracts.gpu_formats import FORMATS, check_served
from tasks.contracts.plan import Estimate, Source
from tasks.contracts.resolution import ResolvedRelease
from tasks.contracts.spec import ReleaseSpec
from tasks.engines.checkpoint.quant_algo import QUANT_ALGO
from tasks.engines.preflight.gpu import Option, check_gpu_engine, check_options, memory_warnings
from tasks.engines.preflight.hub_metadata import Documents, modelopt_algorithm, quantization_of
from tasks.engines.preflight.memory_fit import BITS, GIB, bytes_on_gpus, weights_bytes
from tasks.engines.protocol import EnginePlanner

log = logging.getLogger(__name__)

MODELOPT = "0.47.0"
"""The version that requirements/modelopt.in pins."""

TOOLKIT_BYTES = 8 * GIB
"""Host memory of a process with CUDA, PyTorch and ModelOpt: an allowance."""

FORMAT_OF_ALGO = {algorithm: name for name, algorithm in QUANT_ALGO.items()}


class CheckpointPlanner(EnginePlanner):
    """Base of both planners; a kind adds its options and the name of its runtime."""

    runtime: ClassVar[str]
    """Package that loads the checkpoint."""
    options: ClassVar[Mapping[str, Option]]

    @override
    def check(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        quantization = release.spec.quantization
        check_options(release.spec, self.options)
        if quantization.format == "none":
            check_quantized_source(release, source, documents)
        check_gpu_engine(release, source, documents, self.check)
        if quantization.format == "none" and quantization.kv_cache != "none":
            raise InputError(
                "quantization.kv_cache needs quantized weights, whose files hold the cache's scales",
                found=f"kv_cache {quantization.kv_cache} with format none",
                remedy="Choose a format, or kv_cache none.",
            )

    @override
    def warnings(self, release: ResolvedRelease, source: Source, documents: Documents) -> tuple[str, ...]:
        return memory_warnings(release, source, documents)

    @override
    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Estimate quantize: disk and host memory hold source and result together; GPUs hold the source.

        Weights that keep their format are passed on as files.
        """
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

    @override
    def producers(self, release: ResolvedRelease) -> dict[Stage, dict[str, str]]:
        """ModelOpt makes the checkpoint, whatever the GPU; the runtime only reads it."""
        runtime = {self.runtime: release.runtime.runtime}
        quantized = release.spec.quantization.format != "none"
        modelopt = {"image": release.step_image("quantize"), "nvidia-modelopt": MODELOPT} if quantized else {}
        return {
            "quantize": modelopt,
            "build": runtime,
            "assemble": {"image": release.engine_image, **runtime},
        }


def check_quantized_source(release: ResolvedRelease, source: Source, documents: Documents) -> None:
    """Refuse a checkpoint that ModelOpt quantized to what the GPU cannot compute; warn of other quantizers.

    Raises:
        InputError: the algorithm, which formats the GPU serves, and which GPUs the format needs.
    """
    kind, gpu = release.spec.engine.kind, release.gpu
    if algorithm := modelopt_algorithm(documents):
        field = f"{source.repo}@{source.revision} is already quantized ({algorithm}): format"
        value = FORMAT_OF_ALGO.get(algorithm, algorithm)
        check_served(field, value, FORMATS, kind, gpu.name, gpu.facts.architecture)
    elif method := quantization_of(documents):
        log.warning(
            "%s@%s is already quantized (%s): plan knows ModelOpt's formats, not whether %s serves this one on %s",
            *(source.repo, source.revision, method, kind, gpu.name),
        )
