"""The demo's releases, in order.

A good model goes live. A commit that changes only the README starts no step but plan. A better model goes live and is
rolled back. A damaged model is refused, and the pods of the one that was rolled back end. Meanwhile clients keep
sending requests to the live model, over new and over kept connections, and no request fails. Any other result fails the
demo.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from demo.observers import PodWatch
from demo.timeline import Timeline
from demo.traffic import Traffic, ask
from local.stack import REPOSITORY, Stack
from slipway.cli.airflow.api import Airflow, NoSuchDagError, Run
from slipway.cli.runs.channels import read_channel
from slipway.cli.runs.follow import RunView, follow
from slipway.cli.runs.outcome import evidence_of, gate_of, outcome_of, plan_of
from slipway.cli.runs.plan_tables import plan_heading
from slipway.cli.runs.releases import dag_of
from slipway.cli.runs.screens import screen_on
from slipway.cli.runs.tables import gate_table
from slipway.cli.settings import Settings
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.spec.spec import ReleaseSpec

SPEC = REPOSITORY / "specs" / "demo.yaml"
GOOD, SAME_WEIGHTS, DAMAGED, NEXT = "v1", "v1-readme", "damaged", "v2"
RUN_TIMEOUT_S = 900.0
DAG_TIMEOUT_S = 60.0
GONE_TIMEOUT_S = 120.0
POLL_S = 0.5


class DemoError(PipelineError):
    """A release did not do what the demo promises."""


def run_ended(view: RunView) -> bool:
    """Whether there is nothing left to follow."""
    return view.run.ended


@dataclass
class Demo:
    """The demo; each method is a chapter."""

    stack: Stack
    console: Console
    settings: Settings
    airflow: Airflow
    spec: ReleaseSpec
    pods: PodWatch
    timeline: Timeline

    def release_a_good_model(self) -> None:
        """First release: the model goes live and answers."""
        self._title(1, f"revision {GOOD}: a good model goes live")
        view = self._release(GOOD)
        outcome = outcome_of(self.airflow, view)
        self._expect(outcome.exit_code == 0, f"revision {GOOD} to go live", outcome.text)
        self._say(outcome.text)
        self._ask_live()
        answered_s = self.timeline.mark("the first promoted answer")
        self._say(f"that is the first answer of a promoted model, {answered_s:.0f} s after the command began")

    def release_the_same_weights(self) -> None:
        """Second release: another commit with the same weights starts no step but plan."""
        self._title(2, f"revision {SAME_WEIGHTS}: a commit that changes only the README")
        run_id = _run_id(SAME_WEIGHTS)
        view = self._release(SAME_WEIGHTS, run_id)
        plan = plan_of(view)
        action = plan.action if plan else "no plan"
        self._expect(action == "nothing", "a plan with nothing to do", action)
        ran = sorted(name for name, task in view.tasks.items() if task.state != "skipped")
        self._expect(ran == ["plan"], "only plan to run", ", ".join(ran))
        self._expect(self.pods.problem is None, "to count the run's pods", self.pods.problem)
        started = sorted(self.pods.of(run_id))
        self._expect(started == ["plan"], "one pod to start, for plan", ", ".join(started) or "none")
        skipped = len(view.tasks) - 1
        self._say(f"{outcome_of(self.airflow, view).text}; {skipped} steps skipped, 1 pod started (plan)")

    def roll_back_to_the_previous_release(self, clients: ExitStack) -> tuple[Traffic, str]:
        """Third release and its rollback: the live release changes twice.

        The clients start after the gate, because they would slow its benchmark down, and go on until `clients` ends
        them. Returns them and the release that was rolled back, whose pods end while the next chapter runs.
        """
        self._title(3, f"revision {NEXT}: it goes live and is rolled back while clients use the live model")
        before = self._live_release()
        traffic = Traffic(self.spec.name, *self._live_address(), self.spec.gate.smoke[0])

        def ended(view: RunView) -> bool:
            if gate_of(view) is not None and not traffic.has_begun:
                clients.enter_context(traffic)
            return view.run.ended

        outcome = outcome_of(self.airflow, self._release(NEXT, until=ended))
        self._expect(outcome.exit_code == 0, f"revision {NEXT} to go live", outcome.text)
        after = self._live_release()
        self._expect(after != before, f"a release other than {before} to be live", after)
        run = self._trigger(f"rollback__{self.spec.name}", {"reason": "the demo rolls back"}, _run_id("rollback"))
        state = self._followed(run).run.state
        self._expect(state == "success", "the rollback to succeed", state)
        self._expect(self._live_release() == before, f"{before} to be live again", self._live_release())
        self._say(f"{after} went live and was rolled back; {before} is live again, and its clients go on")
        self._expect_no_failure(traffic)
        return traffic, after

    def refuse_a_damaged_model(self, clients: ExitStack, traffic: Traffic, rolled_back: str) -> RunView:
        """Fourth release: the gate refuses, and the live model never stops answering.

        The clients stop once the pods of the release that was rolled back have ended, which breaks kept connections.
        """
        self._title(4, f"revision {DAMAGED}: the gate refuses it while clients use the live model")
        live = self._live_release()
        view = self._release(DAMAGED)
        gate = gate_of(view)
        self._expect(gate is not None, "the gate to give a verdict", outcome_of(self.airflow, view).text)
        assert gate is not None
        self._expect(gate.verdict is Verdict.FAILED, f"the gate to refuse {DAMAGED}", gate.verdict)
        self._expect(view.run.state == "failed", "the run to fail", view.run.state)
        state = view.tasks["roll-back"].state
        self._expect(state == "success", "roll-back to succeed", state)
        self._expect(self._live_release() == live, f"{live} to stay live", self._live_release())
        newest = read_channel(*self.settings.store(), self.spec.name).history[0].event
        self._expect(newest == "refused", "the channel to record a refusal", newest)
        candidate = self.settings.cluster().service_address(f"{self.spec.name}-candidate")
        self._expect(candidate is None, "no candidate to be left", candidate)
        self._say(outcome_of(self.airflow, view).text)
        self._ask_live()
        self._await_gone(rolled_back)
        clients.close()
        self._count(traffic)
        return view

    def show_evidence(self, view: RunView) -> None:
        """Show the gate's measurements, as a table and as a page."""
        gate, evidence = gate_of(view), evidence_of(view)
        assert gate is not None
        self._expect(evidence is not None, "the gate's result to name its evidence", "none")
        self.console.print()
        self.console.print(gate_table(gate))
        page = self._download(f"{evidence}/report.html")
        self._say(f"full report: {page.as_uri()}")

    def say_where_everything_is(self) -> None:
        """Print addresses and the commands to try next."""
        host, ports = self._live_address()
        user, password = self.stack.airflow.credentials()
        self._title(0, "try it yourself")
        self._say(f"Airflow  {self.airflow.address}  user {user}  password {password}")
        self._say(f"Service  {self.spec.name} at {host} (HTTP {ports['http']}, gRPC {ports['grpc']})")
        self._say(f'ask      bin/slipway ask {self.spec.name} "{self.spec.gate.smoke[0].prompt}"')
        self._say(f"inspect  bin/slipway status {self.spec.name}    bin/slipway explain {self.spec.name}")
        self._say("stop     make down")

    def _release(
        self, revision: str, run_id: str | None = None, until: Callable[[RunView], bool] = run_ended
    ) -> RunView:
        run = self._trigger(dag_of(self.spec.name), {"revision": revision}, run_id or _run_id(revision))
        view = self._followed(run, until)
        if plan := plan_of(view):
            self._say(plan_heading(plan))
        return view

    def _followed(self, run: Run, until: Callable[[RunView], bool] = run_ended) -> RunView:
        with screen_on(self.console) as screen:
            try:
                view = follow(self.airflow, run, screen, until=until, timeout_s=RUN_TIMEOUT_S, poll_s=POLL_S)
            except TimeoutError as error:
                raise DemoError(f"{error}. Look at {self.airflow.run_url(run)}") from error
        self.timeline.add(view, self.pods.of(run.run_id))
        return view

    def _await_gone(self, release: str) -> None:
        """Wait until the pods of a retired release have ended."""
        cluster, deadline = self.settings.cluster(), time.monotonic() + GONE_TIMEOUT_S
        while pods := cluster.find("Pod", {"slipway.dev/release": release}):
            running = f"{len(pods)} left after {GONE_TIMEOUT_S:.0f} s"
            self._expect(time.monotonic() < deadline, f"the pods of {release} to end", running)
            time.sleep(POLL_S)

    def _count(self, traffic: Traffic) -> None:
        kinds = ", ".join(f"{count} over {name}" for name, count in sorted(traffic.counts.items()))
        failed = len(traffic.failures)
        self._say(f"clients sent {traffic.requests} requests in {traffic.seconds:.0f} s: {failed} failed")
        self._say(f"  {kinds}")
        self._expect(all(traffic.counts.values()), "every client to send requests", kinds)
        self._expect_no_failure(traffic)

    def _expect_no_failure(self, traffic: Traffic) -> None:
        self._expect(not traffic.failures, "every request to succeed", (traffic.failures or [""])[0])

    def _trigger(self, dag_id: str, conf: dict[str, str], run_id: str) -> Run:
        """Start a run as soon as the new stack's Airflow has read the DAG."""
        deadline = time.monotonic() + DAG_TIMEOUT_S
        while True:
            try:
                return self.airflow.trigger(dag_id, conf, run_id)
            except NoSuchDagError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)

    def _live_release(self) -> str:
        live = read_channel(*self.settings.store(), self.spec.name).live
        self._expect(live is not None, "a live release", "none")
        assert live is not None
        return live.release_id

    def _live_address(self) -> tuple[str, dict[str, int]]:
        address = self.settings.cluster().live_address(self.spec.name)
        self._expect(address is not None, f"Service {self.spec.name} to exist", "none")
        assert address is not None
        return address.host, dict(address.ports)

    def _ask_live(self) -> None:
        question = self.spec.gate.smoke[0]
        answer = ask(self.spec.name, *self._live_address(), question)
        self._say(f"prompt   {question.prompt}")
        self._say(f"answer   {answer.strip()}")
        self._expect(question.accepts(answer), f"the answer {question.answer!r}", repr(answer))

    def _download(self, uri: str) -> Path:
        store, _ = self.settings.store()
        path = self.stack.folder / "evidence" / urlsplit(uri).path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read_bytes(uri))
        return path

    def _title(self, number: int, text: str) -> None:
        self.console.print()
        self.console.rule(f"{number}. {text}" if number else text, align="left")

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def _expect(self, holds: bool, expected: str, actual: object) -> None:
        if not holds:
            raise DemoError(f"expected {expected}; got {actual}")


def _run_id(revision: str) -> str:
    """An id that also labels the run's pods, which distinguishes them from others."""
    return f"demo-{revision}-{time.strftime('%Y%m%d-%H%M%S')}"
