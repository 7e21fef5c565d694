"""One model on one GPU, through plan's own checks: how many GPUs it needs, or why it is refused."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from bench.models import reasons, records
from bench.models.hub import RecordedHub
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, EngineKind, kinds_with
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import resolve
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.gpu_formats import FORMATS
from slipway.tasks.contracts.spec.spec import CALIBRATED, ReleaseSpec
from slipway.tasks.engines.preflight.sources import documents_of, files_of_release
from slipway.tasks.engines.registry import planner_for

if TYPE_CHECKING:  # only its type
    from slipway.tasks.adapters.hub.hub import Hub

LIMITS = {"max_batch_size": 8, "max_input_tokens": 4096, "max_sequence_tokens": 8192}
"""What every model has to serve; each has at least as many positions."""
CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl"}
GATE = {
    "smoke": [{"prompt": "What is two plus two?", "answer": "Four."}],
    "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}],
}
SUGGESTED = re.compile(r"tensor_parallel (\d+)")


@dataclass(frozen=True)
class Cell:
    """The number of GPUs, or the code of a reason that was looked up."""

    gpus: int = 0
    reason: str = ""

    @property
    def text(self) -> str:
        """What the table shows."""
        return str(self.gpus) if self.gpus else self.reason


def kinds() -> tuple[EngineKind, ...]:
    """Engine kinds that serve on GPUs."""
    return kinds_with("on_gpu")


def formats_of(kind: EngineKind) -> list[str]:
    """Weight formats that a spec may name for the kind, in the order of the tables."""
    stated = list(dict.fromkeys(row.format for row in FORMATS if row.kind == kind))
    return [name for name in stated if name in ENGINE_KINDS[kind].formats]


def spec_of(repo: str, weights: str, engine: Mapping[str, Any]) -> ReleaseSpec:
    """A release of the model in format `weights`, with a calibration set where the format reads texts."""
    calibration = {"calibration": CALIBRATION} if weights in CALIBRATED else {}
    document = {
        "apiVersion": "slipway/v1",
        "kind": "Release",
        "name": "demo",
        "source": {"repo": repo, "revision": "main"},
        "quantization": {"format": weights, **calibration},
        "engine": {**LIMITS, **engine},
        "gate": GATE,
    }
    return read_contract(ReleaseSpec, document, repo)


def spec_on_gpus(repo: str, kind: EngineKind, weights: str, gpu: str, tensor: int = 1) -> ReleaseSpec:
    """A release of the model on `tensor` GPUs of one product."""
    return spec_of(repo, weights, {"kind": kind, "gpu": gpu, "tensor_parallel": tensor})


@cache
def recorded_hub() -> RecordedHub:
    """The models of models.yaml."""
    return RecordedHub(records.models())


def plan(spec: ReleaseSpec, site: Site | None = None, hub: RecordedHub | None = None) -> None:
    """Run the checks that plan runs before it stores anything, on a site with all GPUs unless one is given.

    Raises:
        InputError: plan refuses the spec.
    """
    hub = hub or recorded_hub()
    kind = spec.engine.kind
    release = resolve(spec, site or records.site())
    planner = planner_for(kind)
    source = files_of_release(hub.resolve(spec.source.model, "main"))
    planner.check(release, source, documents_of(source, ENGINE_KINDS[kind].reads_at_plan, cast("Hub", hub)))
    planner.estimate(spec, source)


@cache
def cell(repo: str, kind: EngineKind, weights: str, gpu: str) -> Cell:
    """How many GPUs of one node the model needs, by plan's own suggestion; or why plan refuses it.

    Raises:
        reasons.UnreviewedError: nobody has looked up yet whether the refusal is true.
    """
    try:
        plan(spec_on_gpus(repo, kind, weights, gpu))
    except InputError as refusal:
        if suggested := SUGGESTED.search(refusal.remedy or ""):
            tensor = int(suggested[1])
            plan(spec_on_gpus(repo, kind, weights, gpu, tensor))
            return Cell(gpus=tensor)
        return Cell(reason=reasons.code_of(refusal, kind, repo))
    return Cell(gpus=1)
