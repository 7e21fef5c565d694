"""Plans a checkpoint in Hugging Face layout that a runtime loads as it is, or as ModelOpt quantized it."""

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.gpu_formats import (
    AS_IT_IS,
    FORMATS,
    KV_CACHES,
    MADE_BY_MODELOPT,
    Row,
    check_served,
    modelopt_makes,
    only_weights,
)
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import Stage
from slipway.tasks.contracts.stored.plan import Estimate, Source
from slipway.tasks.engines.checkpoint.files import CONFIG, check_layout
from slipway.tasks.engines.checkpoint.predicting_layers import predicting_layers
from slipway.tasks.engines.checkpoint.quant_algo import QUANT_ALGO
from slipway.tasks.engines.preflight.engine_options import check_options
from slipway.tasks.engines.preflight.gpu import check_gpu_engine, memory_warnings
from slipway.tasks.engines.preflight.hub_metadata import (
    Documents,
    check_causal,
    check_not_quantized_twice,
    layers_algorithms,
    modelopt_algorithm,
    quantization_of,
    stated_cache,
    stated_quantization,
)
from slipway.tasks.engines.preflight.known_classes import check_known_class, served_through_transformers
from slipway.tasks.engines.preflight.memory_fit import BITS, GIB, bytes_on_gpus, weights_bytes
from slipway.tasks.engines.preflight.source_formats import names_of
from slipway.tasks.engines.protocol import EnginePlanner
from slipway.tasks.engines.upstream.tables import table_of

MODELOPT = "0.47.0"
"""The version that requirements/modelopt.in pins."""

TOOLKIT_BYTES = 8 * GIB
"""Host memory of a process with CUDA, PyTorch and ModelOpt: an allowance."""

MIXED = "MIXED_PRECISION"
"""ModelOpt's name where each layer has a format of its own."""
OF_LAYERS = ("FP8", "NVFP4", "W4A16_NVFP4")
WITHOUT_MXFP8 = frozenset({"0.19.0", "0.22.1", "0.24.0"})
"""Versions of vLLM that have MXFP8 for whole checkpoints alone."""

FORMAT_OF_ALGO = {algorithm: name for name, algorithm in QUANT_ALGO.items()}


class CheckpointPlanner(EnginePlanner):
    """Base of both planners; a kind adds the name of its runtime."""

    runtime: ClassVar[str]
    """Package that loads the checkpoint."""

    @override
    def check(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        spec = release.spec
        check_options(spec)
        what = f"{source.name}"
        check_known_class(documents.get(CONFIG, {}), release.runtime, what)
        if spec.quantization.format == "none":
            check_quantized_source(release, source, documents)
        check_not_quantized_twice(spec, source, documents)
        if spec.changes_weights:
            check_quantizable(release, source, documents)
        check_gpu_engine(release, source, documents, self.check)

    @override
    def warnings(self, release: ResolvedRelease, source: Source, documents: Documents) -> tuple[str, ...]:
        return (
            *memory_warnings(release, source, documents),
            *format_warnings(release, source, documents),
            *class_warnings(release, source, documents),
            *scaling_warnings(release),
        )

    @override
    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Estimate quantize: disk and host memory hold source and result together; GPUs hold the source.

        Weights that keep their format are passed on as files.
        """
        weights = weights_bytes(source)
        if not spec.changes_weights:
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
        quantized = release.spec.changes_weights
        modelopt = {"image": release.step_image("quantize"), "nvidia-modelopt": MODELOPT} if quantized else {}
        return {
            "quantize": modelopt,
            "build": runtime,
            "assemble": {"image": release.engine_image, **runtime},
        }


def source_formats(documents: Documents) -> tuple[Sequence[str], Sequence[Row]]:
    """The formats of a checkpoint that is already quantized, and the table that has them; none if it is not."""
    if quantization_of(documents) is None:
        return (), AS_IT_IS
    if algorithm := modelopt_algorithm(documents):
        known = FORMAT_OF_ALGO.get(algorithm)
        return ((known,), FORMATS) if known else ((f"modelopt {algorithm.upper()}",), AS_IT_IS)
    return names_of(stated_quantization(documents) or {}), AS_IT_IS


def check_quantized_source(release: ResolvedRelease, source: Source, documents: Documents) -> None:
    """Refuse a checkpoint that is already quantized to what the runtime or the GPU does not serve.

    Raises:
        InputError: the format, which ones the GPU serves, and which GPUs this one needs.
    """
    names, rows = source_formats(documents)
    if names:
        algorithm = modelopt_algorithm(documents)
        of_modelopt = f" ({algorithm})" if algorithm else ""
        field = f"{source.name} is already quantized{of_modelopt}: format"
        kind, gpu, architecture = release.spec.engine.kind, release.gpu.name, release.gpu.facts.architecture
        check_algorithm(release, source, algorithm)
        check_layers_algorithms(release, source, documents)
        for name in names:
            known = any((row.kind, row.format) == (kind, name) for row in rows)
            check_served(field, name, rows if known else (*FORMATS, *AS_IT_IS), kind, gpu, architecture)
        cache = stated_cache(documents)
        if cache is not None and release.spec.quantization.kv_cache == "none":
            check_served(f"{source.name} asks for a KV cache in", cache, KV_CACHES, kind, gpu, architecture)


def check_algorithm(release: ResolvedRelease, source: Source, algorithm: str | None) -> None:
    """Refuse a format of ModelOpt that this version of vLLM does not have.

    Raises:
        InputError: the format, and those that the version has.
    """
    table = table_of("vllm", release.runtime.runtime) if release.runtime.flavour == "vllm" else None
    if algorithm is None or table is None or algorithm.upper() in table["modelopt_algorithms"]:
        return
    raise InputError(
        f"vLLM {release.runtime.runtime} of {release.engine_image} does not serve the format of {source.name}",
        found=algorithm,
        expected=f"one of {', '.join(table['modelopt_algorithms'])}",
        remedy="Choose an image with a later vLLM, if one serves it, or another checkpoint.",
    )


def check_layers_algorithms(release: ResolvedRelease, source: Source, documents: Documents) -> None:
    """Refuse a checkpoint in several formats of ModelOpt, one of which this version of vLLM does not have for a layer.

    It would take such a layer for one in 16 bits (ModelOptMixedPrecisionConfig.get_quant_method in modelopt.py, at
    v0.24.0 and v0.27.1).

    Raises:
        InputError: the formats, and those that the version has.
    """
    table = table_of("vllm", release.runtime.runtime) if release.runtime.flavour == "vllm" else None
    if table is None or (modelopt_algorithm(documents) or "").upper() != MIXED:
        return
    later = () if release.runtime.runtime in WITHOUT_MXFP8 else ("MXFP8",)
    served = [each for each in (*OF_LAYERS, *later) if each in table["modelopt_algorithms"]]
    stated = layers_algorithms(documents)
    if foreign := sorted(stated - set(served)) or ([] if stated else ["none for any layer"]):
        raise InputError(
            f"vLLM {release.runtime.runtime} of {release.engine_image} does not serve the formats of single layers of "
            f"{source.name}: quantized_layers",
            found=", ".join(foreign),
            expected=f"some of {', '.join(served)}",
            remedy="Choose an image with a later vLLM, if one serves it, or another checkpoint.",
        )


def format_warnings(release: ResolvedRelease, source: Source, documents: Documents) -> tuple[str, ...]:
    """What a person should know about formats that work: a cache without scales, and weights that are only stored."""
    spec, gpu = release.spec, release.gpu
    kind, kv_cache, format_ = spec.engine.kind, spec.quantization.kv_cache, spec.quantization.format
    warnings = []
    if kv_cache != "none" and not spec.changes_weights:
        warnings.append(
            f"quantization.kv_cache {kv_cache} without quantized weights: keys and values are stored with scale 1.0 "
            "unless the checkpoint holds scales; nothing is calibrated, so compare answers with kv_cache none"
        )
    names, rows = source_formats(documents) if format_ == "none" else ((), AS_IT_IS)
    for name, table in [(name, rows) for name in names] or [(format_, FORMATS)]:
        if not only_weights(name, table, kind, gpu.facts.architecture):
            continue
        what = f"{source.repo} is in {name}" if names else f"quantization.format {format_}"
        warnings.append(
            f"{what}, for which {gpu.name} ({gpu.facts.architecture}) has no arithmetic: {kind} stores weights in it "
            "and computes in 16 bits, which saves memory and no time"
        )
    return tuple(warnings)


def class_warnings(release: ResolvedRelease, source: Source, documents: Documents) -> tuple[str, ...]:
    """What a person should know about the code that serves the model, and about what quantizing leaves out of it."""
    config, warnings = documents.get(CONFIG, {}), []
    if served_through_transformers(config, release.runtime):
        warnings.append(
            f"vLLM {release.runtime.runtime} has no class of its own for {source.repo}, and computes that of "
            "transformers, which is slower"
        )
    if release.spec.changes_weights and (layers := predicting_layers(config)):
        warnings.append(
            f"{source.repo} has {layers} layers that predict further tokens, which the quantized model will not have: "
            "transformers, with which it is loaded to be quantized, leaves them out"
        )
    return tuple(warnings)


def scaling_warnings(release: ResolvedRelease) -> tuple[str, ...]:
    """What a person should know about positions that the model was not trained on."""
    overrides = release.spec.engine.overrides
    if overrides is None:
        return ()
    warning = (
        f"engine.overrides scales rotary positions by {overrides.rope_parameters.factor:g} in every prompt, short ones "
        "too: compare their answers with those of the model as it is"
    )
    return (warning,)


def check_quantizable(release: ResolvedRelease, source: Source, documents: Documents) -> None:
    """Refuse what ModelOpt's step cannot load as a causal language model, or cannot make on this GPU.

    Raises:
        InputError: the model's class, or the format and the GPU.
    """
    spec, gpu = release.spec, release.gpu
    check_layout(source)
    check_causal(documents.get(CONFIG, {}), f"{source.name}", spec.quantization.format)
    format_ = spec.quantization.format
    if spec.engine.speculative is not None and spec.engine.speculative.method == "mtp":
        raise InputError(
            f"engine.speculative mtp needs layers of {source.repo} that quantizing leaves out: transformers, with "
            "which the model is loaded, does not load them",
            found=f"format {format_}, and {predicting_layers(documents.get(CONFIG, {}))} such layers",
            expected="a checkpoint that has them",
            remedy="Choose format none or fp8_online, a checkpoint that is already quantized, or remove "
            "engine.speculative.",
        )
    if not modelopt_makes(format_, gpu.facts.architecture):
        raise InputError(
            f"ModelOpt cannot quantize to {format_} on {gpu.name}",
            found=gpu.facts.architecture,
            expected=f"one of {', '.join(MADE_BY_MODELOPT[format_])}",
            remedy="Choose a checkpoint that is already in this format, with format none, or another format or GPU.",
        )
