"""One model on one GPU, through what plan itself checks: how many GPUs it takes, or why it is refused."""

import re
from dataclasses import dataclass
from functools import cache

from tasks.contracts.base import read_contract
from tasks.contracts.engine.engine_kinds import ENGINE_KINDS, kinds_with
from tasks.contracts.errors import InputError
from tasks.contracts.fit.resolution import resolve
from tasks.contracts.spec.gpu_formats import FORMATS
from tasks.contracts.spec.spec import CALIBRATED, ReleaseSpec
from tasks.engines.preflight.sources import documents_of, files_of_release
from tasks.engines.registry import planner_for
from tests.fakes.family_hub import FamilyHub
from tests.fakes.releases import SPEC
from tests.families import reasons, records

LIMITS = {"max_batch_size": 8, "max_input_tokens": 4096, "max_sequence_tokens": 8192}
"""What every model is asked to serve; within the positions of each."""
CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl"}
SUGGESTED = re.compile(r"tensor_parallel (\d+)")


@dataclass(frozen=True)
class Cell:
    """Number of GPUs, or the code of a reason that was looked up."""

    gpus: int = 0
    reason: str = ""

    @property
    def text(self):
        return str(self.gpus) if self.gpus else self.reason


def kinds():
    return kinds_with("on_gpu")


def formats_of(kind):
    """Weight formats that a spec may name for the kind, in the order of the tables."""
    stated = list(dict.fromkeys(row.format for row in FORMATS if row.kind == kind))
    return [name for name in stated if name in ENGINE_KINDS[kind].formats]


def spec_of(repo, kind, weights, gpu, tensor=1):
    """A release of the model as one writes it; with a calibration set where the format reads texts."""
    calibration = {"calibration": CALIBRATION} if weights in CALIBRATED else {}
    document = {
        **SPEC,
        "source": {"repo": repo},
        "quantization": {"format": weights, **calibration},
        "engine": {"kind": kind, "gpu": gpu, "tensor_parallel": tensor, **LIMITS},
    }
    return read_contract(ReleaseSpec, document, repo)


@cache
def _source(repo):
    hub = FamilyHub(records.models())
    return hub, files_of_release(hub.resolve(repo, "main"))


@cache
def _documents(repo, kind):
    hub, source = _source(repo)
    return documents_of(source, ENGINE_KINDS[kind].reads_at_plan, hub)


def plan(spec, site=None):
    """What plan checks of a spec before it stores anything, on a site with all GPUs or on another one.

    Raises:
        InputError: plan refuses it.
    """
    repo, kind = spec.source.repo, spec.engine.kind
    release = resolve(spec, site or records.site())
    planner = planner_for(kind)
    source = _source(repo)[1]
    planner.check(release, source, _documents(repo, kind))
    planner.estimate(spec, source)


@cache
def cell(repo, kind, weights, gpu):
    """How many GPUs of one node plan takes for the model, by its own suggestion; or why it refuses.

    Raises:
        reasons.UnreviewedError: nobody has looked up yet whether the refusal is true.
    """
    try:
        plan(spec_of(repo, kind, weights, gpu))
    except InputError as refusal:
        if suggested := SUGGESTED.search(refusal.remedy):
            tensor = int(suggested[1])
            plan(spec_of(repo, kind, weights, gpu, tensor))
            return Cell(gpus=tensor)
        return Cell(reason=reasons.code_of(refusal, kind, repo))
    return Cell(gpus=1)
