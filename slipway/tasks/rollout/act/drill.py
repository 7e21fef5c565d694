"""Rolls a model back to its previous release and promotes the live one again, under load, and reports what happened.

The channel never changes: it names the live release throughout, so the next roll-out, rollback or drill puts right what
a drill that was killed leaves, by the rules of blue_green.py.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from slipway.tasks.adapters.load.steady_load import BackgroundLoad
from slipway.tasks.adapters.store.evidence_folder import EvidenceFolder
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.errors import ConflictError, InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.measured.drill import DrillFlip, DrillPhase, DrillReport, DrillStart, PhaseName
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.measured.measurement import RequestRow, packed, percentile, values
from slipway.tasks.contracts.spec.rollout import DrillSettings
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.rollout.act import replicas
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.rollout.decide.blue_green import Goal
from slipway.tasks.serving.rendered import manifests

log = logging.getLogger(__name__)

REPORT, START, ROWS = "drill.json", "drill-start.json", "drill-requests.jsonl.gz"
PHASES: tuple[PhaseName, ...] = ("before", "during", "after")


@dataclass
class Record:
    """What a drill has measured so far."""

    started_at: datetime
    was_warm: bool = True
    ready_s: float | None = None
    flips: list[DrillFlip] = field(default_factory=list)
    edges_s: list[float] = field(default_factory=list)
    """Monotonic seconds at which the first flip was decided, and at which the second one was complete."""
    rows: list[RequestRow] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True)
class Drill:
    """One drill of one model, between its live release and the one before."""

    live: RolloutReconciler
    previous: RolloutReconciler
    settings: DrillSettings
    load: BackgroundLoad
    workspace: Workspace
    run: str

    def hold(self) -> DrillReport:
        """Flip the traffic to the previous release and back; the live release serves afterwards, whatever happens.

        Call it with the model's lock, which is kept. The report says so when a release could not start or a flip was
        not completed.

        Raises:
            ConflictError: another run has acquired the lock, and the traffic is that run's.
            InputError: the live release does not serve, so nothing was tried.
            UnavailableError: the live release is not available, or could not be given its traffic back.
        """
        try:
            return self._hold()
        finally:
            self.load.abandon()

    def _hold(self) -> DrillReport:
        record = Record(self.workspace.clock.now())
        self._check_live()
        self.live.reach(Goal.SERVE)  # a drill that was killed may have left the other one
        self.live.reach(Goal.WARM)
        before = self._start().replicas
        record.was_warm = before is not None
        self.live.tell(self.live.target.name, "DrillStarted", f"a drill flips to {self.previous.release.id} and back")
        try:
            self._flip_twice(record)
        except PipelineError as error:
            log.warning("the drill ends early: %s", error)
            record.problem = str(error)
        finally:
            self._put_back_surely(before)
        if record.problem:
            with contextlib.suppress(PipelineError):  # what ended the drill is told
                record.rows = self.load.stop()
        report = self._report(record)
        words = f"{report.failed} of {report.requests} requests failed"
        failed = report.verdict is not Verdict.PASSED
        self.live.tell(self.live.target.name, "DrillFailed" if failed else "DrillPassed", words, warning=failed)
        return report

    def _check_live(self) -> None:
        seen = self.live.observe(Goal.SERVE)
        if seen.server not in seen.deployed or not seen.fits_here:
            raise InputError(
                f"{self.live.release.id} is live and not deployed as the channel says, so there is nothing to drill",
                remedy=f"Restore it first: `slipway restore {self.live.model}`.",
            )

    def _flip_twice(self, record: Record) -> None:
        clock = self.workspace.clock
        began = clock.monotonic()
        self.previous.reach(Goal.WARM)
        record.ready_s = clock.monotonic() - began
        address = self.live.cluster.live_address(self.live.model)
        if address is None:
            raise InputError(f"Service {self.live.model} does not exist")
        self.load.start(address)
        self._wait()
        record.edges_s.append(clock.monotonic())
        record.flips.append(self._flip(self.previous))
        self._wait()
        record.flips.append(self._flip(self.live))
        record.edges_s.append(clock.monotonic())
        self._wait()
        record.rows = self.load.stop()

    def _wait(self) -> None:
        """Let requests pass, and keep the lock."""
        self.workspace.clock.sleep(self.settings.seconds)
        self.live.lock.renew()

    def _flip(self, to: RolloutReconciler) -> DrillFlip:
        clock = self.workspace.clock
        began = clock.monotonic()
        to.reach(Goal.SERVE)
        return DrillFlip(to=to.release.id, seconds=clock.monotonic() - began)

    @property
    def _evidence(self) -> EvidenceFolder:
        return self.workspace.evidence(self.live.release, self.run)

    def _start(self) -> DrillStart:
        """How the run's first attempt found the previous release; how it is now if one has put everything back."""
        evidence = self._evidence
        is_over = bool(evidence.read(REPORT))
        if not is_over and (document := evidence.read(START)):
            start = read_contract_json(DrillStart, document, f"{evidence.uri}/{START}")
            if start.previous == self.previous.release.id:
                return start
        workload = self._workload_of_previous()
        start = DrillStart(
            previous=self.previous.release.id, replicas=None if workload is None else replicas.count(workload)
        )
        evidence.write(START, start.model_dump(mode="json"))
        return start

    def _workload_of_previous(self) -> manifests.Document | None:
        name, cluster = self.previous.target.name, self.previous.cluster
        workloads = (cluster.get(kind, name) for kind in manifests.WORKLOADS)
        return next((item for item in workloads if item is not None), None)

    def _put_back_surely(self, before: int | None) -> None:
        """Put everything back, also when a signal arrives meanwhile; another one would be ignored."""
        try:
            self._put_back(before)
        except ConflictError:
            raise
        except BaseException as error:
            log.warning("the live release is given its traffic back again after %r", error)
            self._put_back(before)
            if not isinstance(error, PipelineError):
                raise

    def _put_back(self, before: int | None) -> None:
        """Make the cluster as it was: the live release serves, the previous one has the replicas that it had.

        Raises:
            ConflictError: another run has acquired the lock.
            UnavailableError: no pod of the live release answers, and the previous one does: it keeps the traffic.
        """
        self._keep_lock()
        serves = self.live.observe(Goal.SERVE).live_selects
        if serves == self.previous.release.id and not self.live.cluster.ready_pods(self.live.target.release_pods):
            raise UnavailableError(
                f"no pod of {self.live.release.id} is ready, and {serves} answers for it since the drill's first flip",
                remedy="The next try gives the traffic back once one is ready, as does the next release or rollback.",
            )
        self.previous.reach(Goal.COOL if before is None else Goal.STAND_BY)
        there = self._workload_of_previous()
        if before is not None and there is not None and replicas.count(there) != before:
            self.previous.cluster.scale(there["kind"], self.previous.target.name, before)

    def _keep_lock(self) -> None:
        """Renew the lock, or acquire it again if a person has deleted it and nobody came since."""
        try:
            self.live.lock.renew()
        except ConflictError:
            channel = self.workspace.documents.channel(self.live.model)
            unchanged = channel.live is not None and channel.live.release_id == self.live.release.id
            if not (unchanged and self.live.lock.is_free()):
                raise
            self.live.lock.acquire()

    def _report(self, record: Record) -> DrillReport:
        phases = _phases(record)
        failures = [row.error for row in record.rows if not row.ok]
        unanswered = [phase.phase for phase in phases if phase.latency_p50_ms is None]
        if record.problem or failures:
            verdict = Verdict.FAILED
        else:
            verdict = Verdict.INCONCLUSIVE if unanswered else Verdict.PASSED
        uri = None
        if record.rows:
            uri = self._evidence.write_bytes(ROWS, packed(record.rows), content_type="application/gzip")
        return DrillReport(
            model=self.live.model,
            run=self.run,
            live=self.live.release.id,
            previous=self.previous.release.id,
            settings=self.settings,
            started_at=record.started_at,
            ended_at=self.workspace.clock.now(),
            verdict=verdict,
            problem=record.problem,
            was_warm=record.was_warm,
            ready_s=record.ready_s,
            flips=tuple(record.flips),
            phases=phases,
            first_failure=failures[0] if failures else "",
            requests_uri=uri,
        )


def _phases(record: Record) -> tuple[DrillPhase, ...]:
    """The requests by when they were due; those of a drill that ended early end in the part where it did."""
    parts: dict[PhaseName, list[RequestRow]] = {name: [] for name in PHASES}
    for row in record.rows:
        parts[PHASES[sum(row.asked_s >= edge for edge in record.edges_s)]].append(row)
    return tuple(
        DrillPhase(
            phase=name,
            requests=len(rows),
            failed=sum(not row.ok for row in rows),
            latency_p50_ms=percentile(values(rows, "latency_ms"), 50),
            latency_p99_ms=percentile(values(rows, "latency_ms"), 99),
        )
        for name, rows in parts.items()
    )


def check_can_flip(live: RolloutReconciler, previous: RolloutReconciler) -> None:
    """Refuse a drill that would interrupt clients although a rollback may be right to.

    Raises:
        InputError: the two releases do not fit side by side, or clients reach them in different ways.
    """
    spec = live.release.spec
    if spec.rollout.surge == "none":
        raise InputError(
            f"{live.release.id} is live with rollout.surge none, so no second release fits beside it",
            expected="a live release with rollout.surge full",
            remedy="Remove rollout.drill from the spec.",
        )
    for each in (live.release, previous.release):
        if each.spec.serving.group is not None:
            raise InputError(
                f"{each.id} shares its server, and a drill would restart the models of its group",
                found=f"serving.group {each.spec.serving.group}",
                expected="releases with servers of their own",
                remedy="Remove rollout.drill from the spec, or release the model twice without serving.group.",
            )
    ways = spec.serving.exposure, previous.release.spec.serving.exposure
    if ways[0] != ways[1]:
        raise InputError(
            f"clients reach {live.release.id} and {previous.release.id} in different ways: a drill would cut them off",
            found=f"serving.exposure {ways[1]} of the previous release",
            expected=ways[0],
            remedy="The next release ends this: from then on both have the same one.",
        )
    if lost := [*_lost(spec, previous.release.spec), *lost_adapters(live, previous)]:
        raise InputError(
            f"{previous.release.id} cannot answer all that clients may ask {live.release.id}: a drill would fail them",
            found=", ".join(lost),
            expected="a previous release that offers at least as much",
            remedy="The next release ends this, if it offers as much: from then on both do.",
        )


def _lost(live: ReleaseSpec, previous: ReleaseSpec) -> Iterator[str]:
    """What clients of the live release would miss while the previous one serves."""
    for limit in ("max_input_tokens", "max_sequence_tokens"):
        if getattr(previous.engine, limit) < getattr(live.engine, limit):
            yield f"{limit} {getattr(previous.engine, limit)} instead of {getattr(live.engine, limit)}"
    fixed = live.serving.autoscale is None and previous.serving.autoscale is None
    if fixed and previous.serving.replicas.min < live.serving.replicas.min:
        yield f"{previous.serving.replicas.min} replicas instead of {live.serving.replicas.min}"


def lost_adapters(live: RolloutReconciler, previous: RolloutReconciler) -> Iterator[str]:
    """Adapters that clients would miss: those of the engine, and those that were added while the release was live."""
    names = [
        {lora.name for lora in each.release.spec.engine.lora}
        | {*each.workspace.documents.adapters(each.model, each.release.id).names}
        for each in (live, previous)
    ]
    if lost := sorted(names[0] - names[1]):
        yield f"no adapter {', '.join(lost)}"
