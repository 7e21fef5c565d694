"""Changes the adapters of a live release: at one pod, then at every one, and only then for clients.

The pods follow a document (slipway/tasks/serving/pod/adapter_files.py). Whether they have taken it up is asked of each
of them, with a question to the adapter itself.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.served_traffic import ServedTraffic
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.measured.measurement import AnswerRow
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.contracts.stored.adapters import MARK, Adapters, AdapterSet, Trial
from slipway.tasks.rollout.act.channel_store import SwappedDocument
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.rollout.decide.adapters import AdapterMove, next_move
from slipway.tasks.serving.rendered.commands import PORTS
from slipway.tasks.serving.rendered.front import STATS_PORT
from slipway.tasks.serving.rendered.questions import TIMEOUT_S, request_of, timeout_s, with_tokens

MOST_MOVES = 10
SETTLE_S = 5.0
"""Longer than a pod takes to see a change (adapter_files.LOOK_S): one that becomes ready later has seen it."""
LOOK_S = 1.0
LOAD_S = 300.0
"""The longest that a pod may take to bring adapters from the store, some hundred MB at most, and to load them."""
MARK_BYTES = 8

log = logging.getLogger(__name__)


class LostPodError(Exception):
    """The pod that tries adapters does not answer, or is not ready any more."""


@dataclass
class AdapterRollout:
    """One run's change. `questions`: those of each adapter, by its name; they are asked where `gated`."""

    live: RolloutReconciler
    questions: Mapping[str, Sequence[SmokeQuestion]]
    gated: bool = True
    rows: list[AnswerRow] = field(default_factory=list)
    """The answers that the gate got."""

    @property
    def document(self) -> SwappedDocument[Adapters]:
        """What the pods follow."""
        workspace, release = self.live.workspace, self.live.release
        uri = workspace.layout.adapters(release.spec.name, release.id)
        return SwappedDocument(workspace.store, uri, Adapters(release_id=release.id), workspace.clock)

    @property
    def traffic(self) -> ServedTraffic:
        """The pods of the release."""
        live = self.live
        return live.workspace.traffic(live.cluster, live.model, PORTS["metrics"], STATS_PORT)

    def reach(self, change: AdapterSet) -> bool:
        """Move until names mean what `change` says and are listed; False where a new adapter did not pass its gate.

        Raises:
            UnavailableError: a pod did not take up the adapters in time, or none is ready.
        """
        for _ in range(MOST_MOVES):
            document, pods = self.document.read(), self._pods()
            move = next_move(document, change.adapters, self.live.run)
            if move is None:
                if document.current:  # a pod may have started without what was wrong or gone
                    self._await_everywhere([entry.version for entry in document.current])
                return True
            log.info("adapters of %s: %s", self.live.release.id, move)
            if not self._make(move, document, change, pods):
                return False
        raise PipelineError(
            f"the adapters of {self.live.release.id} did not change within {MOST_MOVES} moves",
            remedy="Check whether something else writes them.",
        )

    def _make(
        self, move: AdapterMove, document: Adapters, change: AdapterSet, pods: Mapping[str, ServiceAddress]
    ) -> bool:
        trial, swap = document.trial, self.document.swap
        match move:
            case AdapterMove.TRY:
                if not pods:
                    raise UnavailableError(
                        f"no pod of {self.live.release.id} is ready, so no adapter can be tried",
                        remedy=f"See `slipway status {self.live.model}`.",
                    )
                pod = min(pods) if self.gated else None
                tried = Trial(
                    adapters=document.missing(change.adapters),
                    run=self.live.run,
                    mark=secrets.token_hex(MARK_BYTES),
                    pod=pod,
                )
                swap(lambda now: now.tried(tried))
            case AdapterMove.GATE:
                assert trial is not None
                assert trial.pod is not None
                if not self._passes(trial, trial.pod):
                    swap(lambda now: now.tried(None))
                    return False
                swap(lambda now: now.tried(trial.model_copy(update={"pod": None})))
            case AdapterMove.NAME:
                if trial is not None and document.missing(change.adapters):
                    self._await_trial(trial)
                swap(lambda now: now.meaning(change))
            case AdapterMove.LIST:
                self._await_everywhere([entry.version for entry in document.current], gone=document.leaving)
                swap(lambda now: now.listing())
            case AdapterMove.FORGET:
                swap(lambda now: now.tried(None))
        return True

    def _await_trial(self, trial: Trial) -> None:
        """Wait until every pod has what passed; a trial that is given up must not reach pods that start later."""
        try:
            self._await_everywhere([trial.label(entry) for entry in trial.adapters])
        except UnavailableError:
            self.document.swap(lambda now: now.tried(None))
            raise

    def _passes(self, trial: Trial, pod: str) -> bool:
        """Whether each adapter answers its questions at the pod, and the release still answers its own.

        A pod that is lost has not passed: the adapter may have ended its engine, and would end the next one's.
        """
        asked, self.rows = self._asked(trial), []
        try:
            self._await(lambda: self._problem_on_trial(trial, pod))
            for question in asked:
                self.rows.append(self._answered(self._address(pod), question))
        except LostPodError as error:
            self.rows.append(_row(asked[len(self.rows)], error=str(error)))
        except UnavailableError:
            self.document.swap(lambda now: now.tried(None))
            raise
        return all(row.ok for row in self.rows)

    def _asked(self, trial: Trial) -> list[SmokeQuestion]:
        release = self.live.release
        asked = [*release.spec.gate.smoke]
        for entry in trial.adapters:
            own = self.questions[entry.name]
            asked += [each.model_copy(update={"lora": trial.label(entry)}) for each in own]
        return [with_tokens(each, release) for each in asked]

    def _answered(self, address: ServiceAddress, question: SmokeQuestion) -> AnswerRow:
        request = request_of(question)
        try:
            text, _ = self.traffic.ask(address, request, timeout_s(request))
        except InputError as error:
            return _row(question, error=str(error))
        except UnavailableError as error:
            raise LostPodError(str(error)) from error
        return _row(question, answer=text)

    def _await_everywhere(self, labels: Sequence[str], gone: Sequence[str] = ()) -> None:
        """Wait until every ready pod answers to these names, and refuses those that are gone."""
        self.live.workspace.clock.sleep(SETTLE_S)
        self._await(lambda: self._problem_everywhere(labels, gone))

    def _await(self, problem: Callable[[], str]) -> None:
        clock = self.live.workspace.clock
        began = clock.monotonic()
        while found := problem():
            if clock.monotonic() - began > LOAD_S:
                raise UnavailableError(
                    f"the pods of {self.live.release.id} did not take up the adapters in {LOAD_S:.0f} s",
                    found=found,
                    expected="an answer of every ready pod",
                    remedy="See the logs of the containers adapters and triton there. The next try goes on.",
                )
            clock.sleep(LOOK_S)

    def _problem_on_trial(self, trial: Trial, pod: str) -> str:
        address = self._address(pod)
        for entry in trial.adapters:
            try:
                problem = self._problem_at(address, trial.label(entry), answers=True)
            except UnavailableError as error:
                raise LostPodError(str(error)) from error
            if problem:
                return f"{pod}: {problem}"
        return ""

    def _problem_everywhere(self, wanted: Sequence[str], gone: Sequence[str]) -> str:
        if not (pods := self._pods()):
            return "no ready pod"
        for pod, address in pods.items():
            for name in (*wanted, *gone):
                try:
                    problem = self._problem_at(address, name, answers=name in wanted)
                except UnavailableError as error:
                    problem = str(error)
                if problem:
                    return f"{pod}: {problem}"
        return ""

    def _problem_at(self, address: ServiceAddress, name: str, *, answers: bool) -> str:
        try:
            self.traffic.ask(address, GenerateRequest("Hello", 1, lora=name), TIMEOUT_S)
        except InputError as error:
            return str(error) if answers else ""
        return "" if answers else f"it still answers to {name}"

    def _address(self, pod: str) -> ServiceAddress:
        if (address := self._pods().get(pod)) is None:
            raise LostPodError(f"pod {pod}, which tried the adapters, is not ready any more")
        return address

    def _pods(self) -> Mapping[str, ServiceAddress]:
        return self.traffic.pods(self.live.target.release_pods, PORTS)


def _row(question: SmokeQuestion, *, answer: str = "", error: str = "") -> AnswerRow:
    return AnswerRow(
        suite="smoke",
        prompt=question.prompt,
        lora=question.lora.partition(MARK)[0] if question.lora else None,
        expected=question.answer,
        answer=answer,
        ok=not error and question.accepts(answer),
        error=error,
    )
