"""One record for each step: its pod, its documents, and what its result means. Pure.

A step's command is `python -m slipway.tasks <step>`, and its code is the module of slipway/tasks/steps with its name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal

from slipway.tasks.contracts.measured.drill import DrillRequest
from slipway.tasks.contracts.measured.looks import longest_s, turn_requests
from slipway.tasks.contracts.pods.writes import SCRATCH, SHARED_MEMORY, TEMPORARY, Folder
from slipway.tasks.contracts.site.retention import RetentionRequest
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.spec_fields import GROUP_PATIENCE_S
from slipway.tasks.contracts.step_names import STEPS, Step
from slipway.tasks.contracts.stored.adapters import AdaptersRequest
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import RevertRequest

HOUR_S = 3600

ShapeName = Literal["small", "transfer", "compute", "serving", "gpu"]
ImageName = Literal["tasks", "engine", "harness"]
StepRequest = PlanRequest | RevertRequest | DrillRequest | AdaptersRequest | RetentionRequest


def _always(_: ReleaseSpec) -> bool:
    return True


def _never(_: ReleaseSpec) -> bool:
    return False


def _has_harness(spec: ReleaseSpec) -> bool:
    return spec.gate.harness is not None


def _is_compiled(spec: ReleaseSpec) -> bool:
    return spec.engine.traits.compiled


def _makes_weights(spec: ReleaseSpec) -> bool:
    """Weights that keep their format pass through quantize as files, unless the engine is compiled."""
    return spec.engine.traits.compiled or spec.changes_weights


def _no_wait(_: ReleaseSpec, __: Site) -> int:
    return 0


def _measured_network_s(spec: ReleaseSpec, site: Site) -> int:
    """Waiting for pods on several nodes, and the measurement."""
    budget = site.budgets.gpu
    floor = site.gpus[spec.engine.gpu].network if spec.engine.gpu in site.gpus else None
    return budget.schedule_s + budget.pull_s + (floor.timeout_s if floor else 0)


def _ready_s(spec: ReleaseSpec, site: Site) -> int:
    """Waiting until new serving pods are ready."""
    budget = site.budgets.of(gpus=spec.engine.gpu is not None)
    return budget.schedule_s + budget.pull_s + spec.serving.ready_timeout_s


def _rolled_out_s(spec: ReleaseSpec, site: Site) -> int:
    """The same, and waiting for other models of a group, or for a drill to end."""
    waits = spec.serving.group is not None or spec.rollout.drill is not None
    return _ready_s(spec, site) + (GROUP_PATIENCE_S if waits else 0)


def _drilled_s(spec: ReleaseSpec, site: Site) -> int:
    """Sending requests, and waiting for pods of the live release besides those of the previous one."""
    drill = spec.rollout.drill
    return _ready_s(spec, site) + (3 * drill.seconds + 2 * spec.serving.ready_timeout_s if drill is not None else 0)


def _load_s(spec: ReleaseSpec, _: Site) -> int:
    """Sending the requests of gate.benchmark to both targets."""
    load = spec.gate.benchmark
    seconds = int(2 * sum(longest_s(load, level, load.requests + load.warmup) for level in load.levels))
    if load.max_requests is None:
        return seconds
    # the last turn of each target may begin just before the budget ends
    last = sum(longest_s(load, level, turn_requests(load, level)) for level in load.levels)
    return seconds + int(load.budget_s + 2 * last)


def _watched_s(spec: ReleaseSpec, _: Site) -> int:
    """Watching a release that takes the traffic."""
    return spec.rollout.watch_s


def _retention_result(layout: Layout, _: str, run: str) -> str:
    return layout.retention_result(run)


@dataclass(frozen=True)
class Documents:
    """The documents of a step that runs without a planned release."""

    request: type[StepRequest]
    result_uri: Callable[[Layout, str, str], str]
    """Address of its result, for a model and a run."""


@dataclass(frozen=True, kw_only=True)
class StepKind:
    """Facts about one step."""

    service_account: str
    deadline_s: int
    """Seconds that it may run, besides `waits_s`. Not an estimate: it limits what a hanging pod costs."""
    waits_s: Callable[[ReleaseSpec, Site], int] = _no_wait
    """Seconds that the spec and the site let it wait."""
    shape: ShapeName = "small"
    """The site's shape of its pod, where that has no GPUs."""
    image: ImageName = "tasks"
    """Image of its pod, where that has no GPUs."""
    on_gpus: Callable[[ReleaseSpec], bool] = _never
    """Whether its pod has the GPUs of a spec that names a product."""
    writes: tuple[Folder, ...] = (SCRATCH,)
    cluster_access: bool = False
    """Calls the Kubernetes API."""
    hub_access: bool = False
    """Reads from the Hub with the spec's token."""
    reads_source: bool = False
    """Reads the model where its source has it, so its pod mounts the volume that may be."""
    asks_models: bool = False
    """Sends requests to models, with a key where the site wants one."""
    signs: bool = False
    """Has the site's private key."""
    changes_model: bool = False
    """Changes what a model's channel or Services say, so it must know which runs have ended."""
    takes_lease: bool = False
    """Acquires a model's lease, and may take it over from a run that has ended."""
    documents: Documents | None = None
    """None: it works on a planned release, and its result belongs to that."""
    in_release: Callable[[ReleaseSpec], bool] = _always
    """Whether a release of the spec has this step."""
    plans: bool = False
    """Its result names the release that it planned, or says that there is nothing to do."""
    between_nodes: bool = False
    """Needs no pod for a release that is served on one node."""
    with_candidate: bool = False
    """Runs beside the candidate's pods."""
    undoes: bool = False
    """Undoes the steps with a candidate. It has nothing to do before the first began or after the last succeeded."""
    timed: bool = True
    """A forecast has it. It lacks the step that makes forecasts, and the one that a good release does not reach."""
    refusal: str | None = None
    """Begins the message of a task whose result has a verdict that is not `passed`; None: it gives no verdict."""

    def needs_gpu(self, spec: ReleaseSpec) -> bool:
        """Whether the step's pod has GPUs."""
        return spec.engine.gpu is not None and self.on_gpus(spec)

    def folders(self, gpus: int) -> tuple[Folder, ...]:
        """The folders it writes to; with GPUs, also more shared memory than a container has by default."""
        return (*self.writes, SHARED_MEMORY) if gpus else self.writes


STEP_KINDS: Mapping[Step, StepKind] = MappingProxyType(
    {
        "plan": StepKind(
            service_account="slipway-planner",
            deadline_s=HOUR_S // 4,
            hub_access=True,
            reads_source=True,
            documents=Documents(PlanRequest, Layout.plan),
            plans=True,
            timed=False,
        ),
        "download": StepKind(
            service_account="slipway-downloader",
            deadline_s=12 * HOUR_S,
            shape="transfer",
            hub_access=True,
            reads_source=True,
        ),
        "quantize": StepKind(
            service_account="slipway-builder", deadline_s=24 * HOUR_S, shape="compute", on_gpus=_makes_weights
        ),
        "build": StepKind(
            service_account="slipway-builder", deadline_s=24 * HOUR_S, shape="compute", on_gpus=_is_compiled
        ),
        "assemble": StepKind(
            service_account="slipway-builder",
            deadline_s=2 * HOUR_S,
            shape="serving",
            image="engine",
            on_gpus=_always,  # it boots the server
            writes=(SCRATCH, TEMPORARY),
        ),
        "publish": StepKind(service_account="slipway-publisher", deadline_s=12 * HOUR_S, shape="transfer", signs=True),
        "check-network": StepKind(
            service_account="slipway-deployer",
            deadline_s=HOUR_S // 4,
            waits_s=_measured_network_s,
            cluster_access=True,
            between_nodes=True,
        ),
        "roll-out": StepKind(
            service_account="slipway-deployer",
            deadline_s=HOUR_S // 4,
            waits_s=_rolled_out_s,
            cluster_access=True,
            changes_model=True,
            takes_lease=True,
            with_candidate=True,
        ),
        "smoke-test": StepKind(
            service_account="slipway-measurer",
            deadline_s=HOUR_S,
            cluster_access=True,
            asks_models=True,
            with_candidate=True,
        ),
        "benchmark": StepKind(
            service_account="slipway-measurer",
            deadline_s=HOUR_S,
            waits_s=_load_s,
            cluster_access=True,
            asks_models=True,
            with_candidate=True,
        ),
        "evaluate": StepKind(
            service_account="slipway-measurer",
            deadline_s=6 * HOUR_S,
            shape="transfer",
            image="harness",
            cluster_access=True,
            asks_models=True,
            in_release=_has_harness,
            with_candidate=True,
        ),
        "gate": StepKind(
            service_account="slipway-measurer",
            deadline_s=HOUR_S // 2,
            with_candidate=True,
            refusal="the release is refused. ",
        ),
        "promote": StepKind(
            service_account="slipway-deployer",
            deadline_s=HOUR_S // 2,
            waits_s=_watched_s,
            cluster_access=True,
            asks_models=True,
            changes_model=True,
            with_candidate=True,
        ),
        "roll-back": StepKind(
            service_account="slipway-deployer",
            deadline_s=HOUR_S // 2,
            cluster_access=True,
            changes_model=True,
            undoes=True,
            timed=False,
        ),
        "revert": StepKind(
            service_account="slipway-deployer",
            deadline_s=HOUR_S // 4,
            waits_s=_ready_s,
            cluster_access=True,
            changes_model=True,
            takes_lease=True,
            documents=Documents(RevertRequest, Layout.revert),
        ),
        "drill": StepKind(
            service_account="slipway-deployer",
            deadline_s=HOUR_S // 4,
            waits_s=_drilled_s,
            cluster_access=True,
            asks_models=True,
            changes_model=True,
            takes_lease=True,
            documents=Documents(DrillRequest, Layout.drill),
            refusal="",
        ),
        "fetch-adapters": StepKind(
            service_account="slipway-downloader",
            deadline_s=HOUR_S,
            shape="transfer",
            hub_access=True,
            documents=Documents(AdaptersRequest, partial(Layout.adapters_result, step="fetch-adapters")),
        ),
        "sign-adapters": StepKind(
            service_account="slipway-publisher",
            deadline_s=HOUR_S // 4,
            signs=True,
            documents=Documents(AdaptersRequest, partial(Layout.adapters_result, step="sign-adapters")),
        ),
        "load-adapters": StepKind(
            service_account="slipway-deployer",
            deadline_s=HOUR_S,
            cluster_access=True,
            asks_models=True,
            changes_model=True,
            takes_lease=True,
            documents=Documents(AdaptersRequest, partial(Layout.adapters_result, step="load-adapters")),
            refusal="the adapters are refused. ",
        ),
        "retention": StepKind(
            service_account="slipway-retention",
            deadline_s=6 * HOUR_S,
            cluster_access=True,
            documents=Documents(RetentionRequest, _retention_result),
        ),
    }
)

CANDIDATE_STEPS: tuple[Step, ...] = tuple(step for step in STEPS if STEP_KINDS[step].with_candidate)
"""Steps beside which the candidate's pods run, in order."""


def steps_of(spec: ReleaseSpec) -> tuple[Step, ...]:
    """The steps that a release of the spec has, in order."""
    return tuple(step for step in STEPS if STEP_KINDS[step].in_release(spec))
