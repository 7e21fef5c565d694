"""Refuses models to which the release's runtime applies no LoRA adapters."""

from slipway.tasks.contracts.engine.engine_kinds import kinds_with_adapters
from slipway.tasks.contracts.engine.lora_support import LoraSupport
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.files import CONFIG
from slipway.tasks.engines.checkpoint.quant_algo import QUANT_ALGO
from slipway.tasks.engines.preflight.hub_metadata import Documents, modelopt_algorithm, quantization_of

FORMAT_OF_ALGO = {algorithm: name for name, algorithm in QUANT_ALGO.items()}

MERGE = "Merge the adapter into the model (PEFT: merge_and_unload) and release that"


def check_base(spec: ReleaseSpec, support: LoraSupport, documents: Documents) -> None:
    """Refuse an architecture, a format or a division into ranks with which adapters would fail or have no effect.

    Raises:
        InputError: what of the model stands in the way, and where adapters are served.
    """
    architecture = architecture_of(documents)
    others = ", ".join(kind for kind in kinds_with_adapters() if kind != spec.engine.kind)
    if support.layers is not None and architecture not in support.layers:
        raise InputError(
            f"{support.runtime} is not known to apply LoRA adapters to {architecture}: it may fail, or answer without "
            "them",
            expected=f"one of {', '.join(sorted(support.layers))}",
            remedy=f"{MERGE}, or choose another engine kind: {others}.",
        )
    actual = format_of(spec, documents)
    if support.formats is not None and actual not in support.formats:
        raise InputError(
            f"{support.runtime} is not known to apply LoRA adapters to a model in {actual}",
            expected=f"one of {', '.join(sorted(support.formats))}",
            remedy=f"Choose one of these formats, or another engine kind: {others}.",
        )
    _check_ranks(spec, support, documents, actual)


def architecture_of(documents: Documents) -> str:
    """The first architecture that config.json names."""
    return str((documents.get(CONFIG, {}).get("architectures") or ["none"])[0])


def format_of(spec: ReleaseSpec, documents: Documents) -> str:
    """The format that is served: the spec's, or that in which the checkpoint comes."""
    if spec.quantization.format != "none":
        return spec.quantization.format
    if algorithm := modelopt_algorithm(documents):
        return FORMAT_OF_ALGO.get(algorithm, algorithm)
    return quantization_of(documents) or "none"


def _check_ranks(spec: ReleaseSpec, support: LoraSupport, documents: Documents, actual: str) -> None:
    config, engine = documents.get(CONFIG, {}), spec.engine
    hidden, layers = config.get("hidden_size"), config.get("num_hidden_layers")
    limit = support.quantized_above
    if (
        limit is not None
        and actual in support.quantized_inputs
        and engine.tensor_parallel > 1
        and (not isinstance(hidden, int) or hidden > limit)
    ):
        raise InputError(
            f"{support.runtime} gives the layers of {spec.source.model} inputs that are already quantized to {actual}, "
            "to which it cannot apply LoRA adapters",
            found=f"hidden_size {hidden} with tensor_parallel {engine.tensor_parallel}",
            expected=f"a hidden_size up to {limit}, or tensor_parallel 1",
            remedy=f"{MERGE}, or choose another format.",
        )
    if support.whole_stages and isinstance(layers, int) and layers % engine.pipeline_parallel:
        raise InputError(
            f"{support.runtime} applies LoRA adapters to the wrong layers where its pipeline stages differ in length",
            found=f"{layers} layers in {engine.pipeline_parallel} stages",
            expected="a pipeline_parallel that divides the layers",
            remedy="Change engine.pipeline_parallel.",
        )
