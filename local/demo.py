"""`make demo`: three releases of one model through Airflow, on this machine.

A good model goes live; a commit that changes only its README is recognised and starts nothing; a damaged model is
refused and rolled back while a client goes on asking the live one. Whatever is not as it should be ends the demo.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from rich.console import Console

from cli.airflow_api import Airflow, NoSuchDagError, Run
from cli.follow import RunView, follow
from cli.outcome import evidence_of, gate_of, outcome_of, plan_of
from cli.releases import dag_of
from cli.screens import console_on_stdout, screen_on
from cli.settings import Settings
from cli.state import read_channel
from cli.tables import gate_table, plan_heading
from local.demo_observers import PodCount, Traffic, ask, resident_bytes
from local.stack import REPOSITORY, Stack
from tasks.adapters.progress import size
from tasks.contracts.base import read_contract
from tasks.contracts.errors import PipelineError
from tasks.contracts.gate import Verdict
from tasks.contracts.spec import ReleaseSpec

SPEC = REPOSITORY / "specs" / "demo.yaml"
GOOD, SAME_WEIGHTS, DAMAGED = "v1", "v1-readme", "damaged"
RUN_TIMEOUT_S = 900.0
DAG_TIMEOUT_S = 60.0
POLL_S = 0.5


class DemoError(Exception):
    """Something was not as the demo promises."""


def run(stack: Stack) -> int:
    """Run the demo on `stack`, which is started if it is down and left running; the exit code."""
    console, began = console_on_stdout(), time.monotonic()
    try:
        _bring_up(stack, console)
        os.environ.update(stack.client_environment())
        with _demo(stack, console) as demo:
            demo.release_a_good_model()
            demo.release_the_same_weights()
            refused = demo.refuse_a_damaged_model()
            demo.show_evidence(refused)
            demo.say_where_everything_is()
    except (DemoError, PipelineError, RuntimeError, OSError) as error:
        console.print(f"\ndemo: {error}", style="bold red", highlight=False, soft_wrap=True, markup=False)
        console.print(
            f"The stack is left as it is: logs lie under {stack.folder}, `make down` ends it.", soft_wrap=True
        )
        return 1
    except KeyboardInterrupt:
        console.print("\ndemo: stopped; the stack and a run under way go on. `make down` ends them.")
        return 130
    memory = resident_bytes(stack.folder)
    used = f", {size(memory)} of memory in the stack's processes" if memory else ""
    console.print(f"\ndemo: everything as promised, {time.monotonic() - began:.0f} s{used}", style="bold green")
    return 0


def _bring_up(stack: Stack, console: Console) -> None:
    console.rule("the stack", align="left")
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - began:5.1f} s  {text}", highlight=False, soft_wrap=True, markup=False)

    stack.up(say)


@contextmanager
def _demo(stack: Stack, console: Console) -> Iterator["Demo"]:
    spec = read_contract(ReleaseSpec, yaml.safe_load(SPEC.read_text()), SPEC.name)
    settings = Settings.resolve(os.environ)
    with settings.airflow() as airflow:
        yield Demo(stack, console, settings, airflow, spec)


@dataclass
class Demo:
    """The story, a chapter per method."""

    stack: Stack
    console: Console
    settings: Settings
    airflow: Airflow
    spec: ReleaseSpec

    def release_a_good_model(self) -> None:
        """First release: the model goes live and answers."""
        self._title(1, f"revision {GOOD}: a good model goes live")
        view = self._release(GOOD)
        outcome = outcome_of(self.airflow, view)
        self._expect(outcome.exit_code == 0, f"revision {GOOD} was to go live, but {outcome.text}")
        self._say(outcome.text)
        self._ask_live()

    def release_the_same_weights(self) -> None:
        """Second release: another commit, the same files that matter."""
        self._title(2, f"revision {SAME_WEIGHTS}: a commit that changes only the README")
        run_id = _run_id(SAME_WEIGHTS)
        namespace = self.settings.site().kubernetes.pipeline_namespace
        with PodCount(self.stack.kubeconfig, namespace, f"slipway.dev/run={run_id}") as pods:
            view = self._release(SAME_WEIGHTS, run_id)
        plan = plan_of(view)
        self._expect(plan is not None and plan.action == "nothing", "the plan was to find nothing to do")
        ran = sorted(name for name, task in view.tasks.items() if task.state != "skipped")
        self._expect(ran == ["plan"], f"only plan was to run, but these ran: {', '.join(ran)}")
        self._expect(pods.problem is None, f"the run's pods were to be counted, but {pods.problem}")
        started = sorted(pods.steps.values())
        self._expect(started == ["plan"], f"one pod was to start, for plan; started: {', '.join(started) or 'none'}")
        self._say(f"{outcome_of(self.airflow, view).text}; {len(view.tasks) - 1} steps skipped, 1 pod started (plan)")

    def refuse_a_damaged_model(self) -> RunView:
        """Third release: the gate refuses, the old model never stops answering."""
        self._title(3, f"revision {DAMAGED}: the gate refuses it while a client asks the live model")
        live = self._live_release()
        address = self._live_address()
        with Traffic(self.spec.name, *address, self.spec.gate.smoke[0]) as traffic:
            view = self._release(DAMAGED)
        gate = gate_of(view)
        self._expect(gate is not None, f"the gate was to judge, but {outcome_of(self.airflow, view).text}")
        assert gate is not None
        self._expect(gate.verdict is Verdict.FAILED, f"the gate was to refuse it, but says {gate.verdict}")
        self._expect(view.run.state == "failed", f"the run was to end failed, but ended {view.run.state}")
        rolled_back = view.tasks["roll-back"].state
        self._expect(rolled_back == "success", f"roll-back was to succeed, but is {rolled_back}")
        self._expect(self._live_release() == live, f"{live} was to stay live, but {self._live_release()} is")
        self._say(outcome_of(self.airflow, view).text)
        self._ask_live()
        count, failed = traffic.requests, traffic.failures
        self._say(f"the client sent {count} requests in {traffic.seconds:.0f} s meanwhile: {len(failed)} failed")
        self._expect(count > 0 and not failed, f"no request was to fail; first: {(failed or ['none was sent'])[0]}")
        return view

    def show_evidence(self, view: RunView) -> None:
        """What the gate saw, as a table and as a page."""
        gate, evidence = gate_of(view), evidence_of(view)
        assert gate is not None
        self._expect(evidence is not None, "the gate's result was to say where its evidence lies")
        self.console.print()
        self.console.print(gate_table(gate))
        page = self._download(f"{evidence}/report.html")
        self._say(f"the whole evidence: {page.as_uri()}")

    def say_where_everything_is(self) -> None:
        """Addresses, and what to type next."""
        host, ports = self._live_address()
        user, password = self.stack.airflow.credentials()
        self._title(0, "it is yours now")
        self._say(f"Airflow  {self.airflow.address}  user {user}  password {password}")
        self._say(f"Service  {self.spec.name} at {host} (HTTP {ports['http']}, gRPC {ports['grpc']})")
        self._say(f'ask      ./slipway ask {self.spec.name} "{self.spec.gate.smoke[0].prompt}"')
        self._say(f"look     ./slipway status {self.spec.name}    ./slipway explain {self.spec.name}")
        self._say("stop     make down")

    def _release(self, revision: str, run_id: str | None = None) -> RunView:
        run = self._trigger(revision, run_id or _run_id(revision))
        with screen_on(self.console) as screen:
            try:
                view = follow(self.airflow, run, screen, timeout_s=RUN_TIMEOUT_S, poll_s=POLL_S)
            except TimeoutError as error:
                raise DemoError(f"{error}; look at {self.airflow.run_url(run)}") from error
        if plan := plan_of(view):
            self._say(plan_heading(plan))
        return view

    def _trigger(self, revision: str, run_id: str) -> Run:
        """Start a run, once the new stack's Airflow has read the DAG."""
        deadline = time.monotonic() + DAG_TIMEOUT_S
        while True:
            try:
                return self.airflow.trigger(dag_of(self.spec.name), {"revision": revision}, run_id)
            except NoSuchDagError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)

    def _live_release(self) -> str:
        live = read_channel(*self.settings.store(), self.spec.name).live
        self._expect(live is not None, "a release was to be live, but none is")
        assert live is not None
        return live.release_id

    def _live_address(self) -> tuple[str, dict[str, int]]:
        address = self.settings.cluster().live_address(self.spec.name)
        self._expect(address is not None, f"Service {self.spec.name} was to exist, but does not")
        assert address is not None
        return address.host, dict(address.ports)

    def _ask_live(self) -> None:
        question = self.spec.gate.smoke[0]
        text = ask(self.spec.name, *self._live_address(), question)
        self._say(f"asked    {question.prompt}")
        self._say(f"answered {text.strip()}")
        self._expect(question.accepts(text), f"the answer was to be {question.answer!r}")

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

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise DemoError(otherwise)


def _run_id(revision: str) -> str:
    """An id that is also the run's identity in labels, so that its pods can be told from others."""
    return f"demo-{revision}-{time.strftime('%Y%m%d-%H%M%S')}"
