"""Runs a canary: write the weights, watch both releases under real traffic, judge, and write the next weights."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.store.evidence_folder import EvidenceFolder
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.measured.canary import CANARY_FILE, CanaryLook, CanaryRecord
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.measured.traffic import Finding, Served, Side, errors, grown, judge, verdict_of
from slipway.tasks.contracts.site.exposure import Split
from slipway.tasks.rollout.act import canary_routes
from slipway.tasks.rollout.act.canary_routes import CanaryRoutes
from slipway.tasks.rollout.decide import canary
from slipway.tasks.rollout.decide.canary import FINAL, Phase, State
from slipway.tasks.serving.rendered import exposure
from slipway.tasks.serving.rendered.questions import request_of, timeout_s, with_tokens

log = logging.getLogger(__name__)

LOOK_S = 5.0
SETTLE_S = 2.0
"""Time before a step is watched: requests of the weights before it end, and the fronts have counted them."""
ROUTE_TIMEOUT_S = 60.0
POLL_S = 0.2


class Traffic(Protocol):
    """What serves both releases; see tasks.adapters.load.served_traffic."""

    def counters(self, labels: dict[str, str]) -> dict[str, Served] | None:
        """What Triton has counted in each ready pod with these labels; None when one cannot be read."""

    def answers(self, labels: dict[str, str]) -> dict[str, Served] | None:
        """Likewise, what the pods' fronts have counted; None where they show nothing."""

    def ask(self, service: ServiceAddress, request: GenerateRequest, timeout_s: float) -> tuple[str, float]:
        """The answer of a Service, and the seconds that it took."""


@dataclass
class Counter:
    """Sums of what the pods of a release counted between marks."""

    read: Callable[[], dict[str, Served] | None]
    total: Served = field(default_factory=Served)
    seen: dict[str, Served] = field(default_factory=dict)
    blind: bool = True
    """Whether the pods could not be read the last time."""

    def mark(self) -> None:
        """Take what is counted now as the beginning."""
        counts = self.read()
        self.blind = counts is None
        self.seen = {**self.seen, **(counts or {})}

    def add(self, *, times: bool = True) -> None:
        """Add what was counted since the last mark, and what it took."""
        before, blind = self.seen, self.blind
        self.mark()
        if not (blind or self.blind):
            new = grown(before, self.seen)
            self.total += new if times else Served(new.succeeded, new.failed)


@dataclass
class Window:
    """What was seen of one release during a step."""

    served: Counter
    answered: Counter
    probes_s: list[float] = field(default_factory=list)
    answered_probes_s: tuple[float, ...] = ()
    """Probes that the fronts have counted."""

    @classmethod
    def of(cls, traffic: Traffic, labels: dict[str, str]) -> "Window":
        """A window at the pods with these labels."""
        return cls(Counter(lambda: traffic.counters(labels)), Counter(lambda: traffic.answers(labels)))

    def begin(self) -> None:
        """Begin to watch. Fronts that show nothing are left alone from then on."""
        self.served.mark()
        self.answered.mark()

    def add_probed(self, *, answered: bool) -> None:
        """Count what came while a probe was asked, without its times: the probe's own are among Triton's.

        A front counts times later, so theirs are subtracted. Whether Triton counted a probe that got no answer is not
        known, so what came meanwhile is left out.
        """
        if answered:
            self.served.add(times=False)
        else:
            self.served.mark()

    def add(self) -> None:
        """Add what was counted since."""
        self.served.add()
        if not self.answered.blind:
            self.answered.add()
            self.answered_probes_s = tuple(self.probes_s)

    @property
    def side(self) -> Side:
        """What is judged."""
        answered, probes_s = self.answered.total, self.answered_probes_s
        own = replace(
            answered,
            timed=max(0.0, answered.timed - len(probes_s)),
            request_s=max(0.0, answered.request_s - sum(probes_s)),
        )
        return Side(self.served.total, tuple(self.probes_s), own)


@dataclass(frozen=True)
class CanaryRun:
    """One canary, from wherever an earlier try left it."""

    routes: CanaryRoutes
    traffic: Traffic
    cluster: Cluster
    clock: Clock
    candidate_pods: dict[str, str]
    live_pods: dict[str, str]
    keep_lock: Callable[[], None]
    still_answers: Callable[[], bool]
    """Whether the candidate has the pods that it needs."""
    tell: Callable[[str, str], None]
    """Records an Event about the candidate: reason and message."""
    evidence: EvidenceFolder
    """Of the run: people read there how far the canary is."""

    def finish(self) -> list[str]:
        """Run every step.

        Returns:
            A line for each step that was watched.

        Raises:
            InputError: the candidate failed, or could not be judged; it gets no traffic any more.
            UnavailableError: no Gateway takes up the routes.
        """
        plan = canary.plan_of(self.routes.release.spec.rollout)
        state, lines, windows = self.routes.state() or canary.begin(plan), [], self._windows()
        looks = self._looks_before()
        refused: InputError | None = None
        while state.phase not in FINAL:
            self._record(state, looks)  # first: a store that hangs must not delay the look at new weights
            self.routes.write(state)
            self._await_gateway()
            findings = self._watch(*windows)
            before, state = state, canary.advance(state, verdict_of(findings), plan)
            looks = (*looks, self._look(before, findings))
            lines.append(self._words(before, findings))
            log.info("canary at %s", lines[-1])
            self.tell(f"Canary{'Mirror' if before.phase is Phase.MIRRORING else f'Step{before.step + 1}'}", lines[-1])
            if state.phase is Phase.ROLLED_BACK:
                refused = self._refused(before, findings)
            if (state.phase, state.step) != (before.phase, before.step):
                windows = self._windows()
        self.routes.write(state)
        self._record(state, looks)
        if state.phase is Phase.ROLLED_BACK:
            self._await_gateway()
            raise refused or self._refused_before()
        return lines

    def _windows(self) -> tuple[Window, Window]:
        return Window.of(self.traffic, self.candidate_pods), Window.of(self.traffic, self.live_pods)

    def _split(self, state: State) -> Split:
        return canary.split(state, canary.plan_of(self.routes.release.spec.rollout))

    def _look(self, state: State, findings: list[Finding]) -> CanaryLook:
        split, why = self._split(state), tuple(finding.why for finding in findings)
        return CanaryLook(
            at=self.clock.now(),
            percent=split.candidate_percent,
            mirror=split.mirror_percent,
            verdict=verdict_of(findings),
            why=why,
        )

    def _record(self, state: State, looks: tuple[CanaryLook, ...]) -> None:
        """Write for people how far the canary is. It goes on without that, because the route has its state."""
        split, rollout = self._split(state), self.routes.release.spec.rollout
        record = CanaryRecord(
            candidate=self.routes.release.id,
            live=self.routes.live.id,
            mirrors=rollout.mirror,
            steps=rollout.steps,
            percent=split.candidate_percent,
            mirror=split.mirror_percent,
            phase=state.phase.value,
            looks=looks,
        )
        try:
            self.evidence.write(CANARY_FILE, record.model_dump(mode="json"))
        except PipelineError as error:
            log.warning("the pages show an older state of this canary: %s", error)

    def _looks_before(self) -> tuple[CanaryLook, ...]:
        """Verdicts of an earlier try of this step."""
        try:
            found = self.evidence.read(CANARY_FILE)
            return read_contract_json(CanaryRecord, found, CANARY_FILE).looks if found else ()
        except PipelineError as error:
            log.warning("earlier verdicts of this canary cannot be read: %s", error)
            return ()

    def _where(self, state: State) -> str:
        rollout = self.routes.release.spec.rollout
        if state.phase is Phase.MIRRORING:
            return f"a mirror of {rollout.mirror} % of the live requests"
        return f"step {state.step + 1} of {len(rollout.steps)} ({rollout.steps[state.step]} % of the requests)"

    def _words(self, state: State, findings: list[Finding]) -> str:
        return f"{self._where(state)}: {verdict_of(findings)}: {'; '.join(finding.why for finding in findings)}"

    def _refused(self, state: State, findings: list[Finding]) -> InputError:
        verdict = verdict_of(findings)
        looks = f", {1 + state.blind_looks} times in a row" if verdict is Verdict.INCONCLUSIVE else ""
        return self._no_more_traffic(
            f"was {verdict} at {self._where(state)}{looks}",
            "; ".join(finding.why for finding in findings if finding.verdict is verdict),
        )

    def _refused_before(self) -> InputError:
        return self._no_more_traffic("was rolled back by an earlier try of this step", "its state in the route")

    def _no_more_traffic(self, what: str, found: str) -> InputError:
        release, live = self.routes.release, self.routes.live
        return InputError(
            f"the canary of {release.id} {what}; it gets no more traffic",
            found=found,
            expected="every limit of rollout.canary to hold",
            remedy=f"{live.id} serves all requests, and the candidate is removed. See this step's log for every step.",
        )

    def _watch(self, candidate: Window, live: Window) -> list[Finding]:
        """Watch for rollout.bake_s, or until the candidate has failed. Times are judged at the end alone."""
        rollout = self.routes.release.spec.rollout
        self.clock.sleep(SETTLE_S)
        began = self.clock.monotonic()
        for window in (candidate, live):
            window.begin()
        while (passed_s := self.clock.monotonic() - began) < rollout.bake_s:
            self.clock.sleep(min(LOOK_S, rollout.bake_s - passed_s))
            self.keep_lock()
            for window in (candidate, live):
                window.add()
            asked = [len(window.probes_s) for window in (candidate, live)]
            if (problem := self._probe(candidate, live)) is not None:
                return [Finding(Verdict.FAILED, problem)]
            failing = errors(candidate.side, live.side, rollout.limits)
            if verdict_of(failing) is Verdict.FAILED:
                return failing
            for window, before in zip((candidate, live), asked, strict=True):
                window.add_probed(answered=len(window.probes_s) > before)
        return judge(candidate.side, live.side, rollout.limits)

    def _probe(self, candidate: Window, live: Window) -> str | None:
        """Ask both releases a question; what is wrong with the candidate."""
        release, name = self.routes.release, self.routes.release.spec.name
        if not self.still_answers():
            return "the candidate became unavailable"
        request = request_of(with_tokens(release.spec.gate.smoke[0], release))
        live_address = self.cluster.live_address(name)
        live_is_away = live_address is None
        if live_address is not None:
            try:
                live.probes_s.append(self.traffic.ask(live_address, request, timeout_s(request))[1])
            except UnavailableError:
                live_is_away = True
            except InputError as error:  # it may have another API or other adapters than the candidate
                log.debug("the live release rejects the probe: %s", error)
        try:
            candidate.probes_s.append(
                self.traffic.ask(self.cluster.candidate_address(name), request, timeout_s(request))[1]
            )
        except PipelineError as error:
            if live_is_away:  # this pod's network, or the cluster's
                log.warning("neither release answers the probe: %s", error)
                return None
            return f"the candidate does not answer the probe: {error}"
        return None

    def _await_gateway(self) -> None:
        """Wait until a Gateway has taken up the weights of every route.

        Raises:
            UnavailableError: none does.
        """
        began, why = self.clock.monotonic(), ""
        while self.clock.monotonic() - began <= ROUTE_TIMEOUT_S:
            for kind in (exposure.HTTP_ROUTE, exposure.GRPC_ROUTE):
                route = self.cluster.get(kind, self.routes.live.spec.name)
                refused = canary_routes.refusal(route) if route else None
                if refused is not None:
                    why = f"{kind}: {refused or 'no condition Accepted for its newest generation'}"
                    break
            else:
                return
            self.clock.sleep(POLL_S)
        raise UnavailableError(
            f"no Gateway took up the weights of {self.routes.live.spec.name} within {ROUTE_TIMEOUT_S:.0f} s",
            found=why,
            remedy="Check the Gateway that the site file names, and the log of its controller.",
        )
