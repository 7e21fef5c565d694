"""The second move, check: refuse what cannot work before any pod starts."""

import logging
from dataclasses import dataclass

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.ledger import cost_per_hour
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.fit.step_needs import step_shape
from slipway.tasks.contracts.site.site import quantity
from slipway.tasks.contracts.spec.gate import UNIT_COST
from slipway.tasks.contracts.stored.plan import Estimate
from slipway.tasks.engines.kind_choice import end_of_kind, recommendation
from slipway.tasks.engines.preflight import chat
from slipway.tasks.planning.resolving import Resolution
from slipway.tasks.rollout.act import server_target
from slipway.tasks.rollout.act.served import Served
from slipway.tasks.serving.rendered.front_routes import limits_of

log = logging.getLogger(__name__)

GIB = 2**30


@dataclass(frozen=True)
class Findings:
    """What the checks of a resolution computed, where none of them refused it."""

    estimate: Estimate
    warnings: tuple[str, ...]
    thinks: bool
    """The chat template mentions thinking."""
    engine_kind: str
    """The spec's engine kind beside the one that suits the model and its GPU; empty for a kind on CPUs."""


def check(resolution: Resolution, served: Served) -> Findings:
    """Refuse what the engine, the model, the site or the live releases rule out; log what may surprise a person.

    Raises:
        InputError: the first thing that cannot work.
    """
    release, engine, source = resolution.release, resolution.engine, resolution.source
    spec, documents = resolution.spec, resolution.documents
    engine.check(release, source, documents)
    chat.check_rendering(spec, documents)
    of_engine = engine.warnings(release, source, documents)
    of_kind = end_of_kind(release, source, documents)
    warnings = (*of_engine, *chat.warnings(spec, documents), *server_target.warnings(spec), *of_kind)
    for warning in warnings:
        log.warning(warning)
    estimate = _with_companions(engine.estimate(spec, source), resolution.companion_bytes)
    _check_fit(release, estimate)
    _check_price(release)
    server_target.check_beside_live(release, served)
    return Findings(estimate, warnings, chat.thinks(documents), recommendation(release, documents))


def _with_companions(estimate: Estimate, size_bytes: int) -> Estimate:
    """Add adapters and a draft model, which are on disk as downloaded and once more as passed on."""
    return estimate.model_copy(
        update={
            "download_bytes": estimate.download_bytes + size_bytes,
            "scratch_bytes": estimate.scratch_bytes + 2 * size_bytes,
        }
    )


def _check_fit(release: ResolvedRelease, estimate: Estimate) -> None:
    """Refuse what would run out of disk or memory after hours of work."""
    spec, site = release.spec, release.site
    shape, name = release.step("quantize").shape, step_shape("quantize", spec)
    needs = (("scratch", shape.scratch, estimate.scratch_bytes), ("memory", shape.memory, estimate.memory_bytes))
    for resource, given, needed_bytes in needs:
        if needed_bytes > quantity(given):
            raise InputError(
                f"quantize of {spec.source.model} needs about {needed_bytes / GIB:.2f} GiB of {resource}",
                found=f"{given} in shapes.{name}.{resource} of site {site.name}",
                remedy=f"Raise shapes.{name}.{resource} in the site file.",
            )
    limits_of([spec], int(quantity(release.serving.shape.memory)))


def _check_price(release: ResolvedRelease) -> None:
    """Refuse a limit of costs that the gate could not judge after all the work."""
    spec, site = release.spec, release.site
    if cost_per_hour(release) is None and any(line.metric == UNIT_COST for line in spec.gate.expect):
        raise InputError(
            f"gate.expect limits {UNIT_COST} of {spec.name}",
            found=f"no price for {spec.engine.gpu or 'CPUs'} at site {site.name}",
            remedy=f"Set prices.{f'gpu_hour.{spec.engine.gpu}' if spec.engine.gpu else 'cpu_hour'} in the site file "
            "(docs/day-two.md), or remove the limit.",
        )
