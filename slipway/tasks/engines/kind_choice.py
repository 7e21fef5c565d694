"""Which engine kind suits a model and a GPU, and what becomes of a kind that no later image has. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, EngineKind, kinds_with, outlasting
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease, resolve
from slipway.tasks.contracts.site.triton_images import ENGINES_END, STATED_IMAGES
from slipway.tasks.contracts.spec.gate import PER_REQUEST_METRICS, Gate
from slipway.tasks.contracts.spec.gpu_formats import FORMATS, served
from slipway.tasks.contracts.spec.migrate import migrate
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import Source
from slipway.tasks.engines.checkpoint.files import CONFIG
from slipway.tasks.engines.preflight.hub_metadata import Documents, quantization_of
from slipway.tasks.engines.registry import planner_for
from slipway.tasks.engines.trtllm.families import CONVERTERS, QUANTIZED, architecture_of

(BUILT,) = kinds_with("compiled")
LOADED: EngineKind = "vllm"
"""The kind for everything else: later images have it, and it knows the families of 2026."""


@dataclass(frozen=True)
class Recommendation:
    """An engine kind, and why."""

    kind: EngineKind
    because: str


def recommended(
    config: Mapping[str, Any], gpu_architecture: str, *, quantized: bool, limits_latency: bool
) -> Recommendation:
    """The kind for a model on a GPU.

    Args:
        config: config.json.
        gpu_architecture: compute capability, e.g. `sm_89`.
        quantized: the checkpoint is already quantized.
        limits_latency: the gate limits the time of a request, which makes an engine worth its build.
    """
    architecture, last = architecture_of(config), STATED_IMAGES["trtllm", ENGINE_KINDS[BUILT].triton_releases[-1]]
    library = f"TensorRT-LLM {last.runtime}"
    if architecture not in CONVERTERS and architecture not in QUANTIZED:
        return Recommendation(LOADED, f"{library} builds no engine of {architecture}")
    if quantized:
        return Recommendation(LOADED, "the checkpoint is already quantized, and an engine is built from 16-bit weights")
    if not served(FORMATS, BUILT, gpu_architecture):
        return Recommendation(LOADED, f"{library} builds no engine for {gpu_architecture}")
    if not limits_latency:
        return Recommendation(LOADED, "the gate limits no latency that would be worth building an engine")
    return Recommendation(BUILT, f"{library} knows {architecture}, and the gate limits latency")


def limits_latency(gate: Gate) -> bool:
    """Whether the gate limits the time of a request."""
    return any(line.metric in PER_REQUEST_METRICS and line.at_most is not None for line in gate.expect)


def recommendation(release: ResolvedRelease, documents: Documents) -> str:
    """The kind that suits a release, and why, as plan says it; empty for a kind on CPUs.

    Args:
        release: the spec on the site.
        documents: as for EnginePlanner.check.
    """
    spec = release.spec
    if not spec.engine.traits.on_gpu:
        return ""
    found = recommended(
        documents.get(CONFIG, {}),
        release.gpu.facts.architecture,
        quantized=quantization_of(documents) is not None,
        limits_latency=limits_latency(spec.gate),
    )
    verdict = "as recommended" if found.kind == spec.engine.kind else f"as the spec says; {found.kind} is recommended"
    return f"{spec.engine.kind}, {verdict}: {found.because}"


def end_of_kind(release: ResolvedRelease, source: Source, documents: Documents) -> tuple[str, ...]:
    """A warning where no later image has the kind: the last one, and what `slipway migrate` makes of the spec.

    Args:
        release: the spec on the site.
        source: the files that will be downloaded.
        documents: as for EnginePlanner.check.
    """
    kind, traits = release.spec.engine.kind, release.spec.engine.traits
    if traits.flavour is None or not outlasting(kind):
        return ()
    last, to = STATED_IMAGES[traits.flavour, traits.triton_releases[-1]], outlasting(kind)[0]
    why = f"TensorRT-LLM {ENGINES_END} has no engines" if traits.compiled else "no later Triton has TensorRT-LLM"
    outcome = _outcome(release, to, source, documents)
    ends = f"{kind} ends with Triton {last.release} (TensorRT-LLM {last.runtime}), as {why}"
    return (f"{ends}; `slipway migrate --to {to}` {outcome}",)


def _outcome(release: ResolvedRelease, to: EngineKind, source: Source, documents: Documents) -> str:
    before = release.spec.model_dump(mode="json", exclude_defaults=True)
    try:
        after = migrate(release.spec, before, to).document
        migrated = resolve(read_contract(ReleaseSpec, after, release.spec.name), release.site)
        planner_for(to).check(migrated, source, documents)
    except InputError as error:
        return f"does not help yet: {error.what}" + (f", found {error.found}" if error.found else "")
    changes = [each for each in _differences(before, after) if not each.startswith("engine.kind")]
    return f"changes {', '.join(changes)}" if changes else "changes nothing else"


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Fields that differ, with both values where they are plain."""
    for name in before:
        path, old, new = f"{prefix}{name}", before[name], after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, f"{path}.")
        elif old != new:
            plain = isinstance(old, str | int | float) and new is not None
            yield f"{path} {old} → {new}" if plain else f"{path} (removed)"
