"""The chapter of the canary, for `make demo CANARY=1`.

A model that clients reach through a Gateway is released again, with an engine that answers one request after the other.
Its gate asks one question at a time and finds nothing. With 5 % of the requests it is still fast; with half of them
they queue up, and the canary is rolled back, while no request fails.
"""

import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from demo.story import Demo
from demo.traffic import Client, Routed, Traffic
from local.private_files import write_private
from local.stack import REPOSITORY
from slipway.cli.runs.follow import RunView
from slipway.cli.runs.outcome import gate_of, outcome_of
from slipway.tasks.contracts.measured.gate import Verdict

SPEC = REPOSITORY / "demo" / "canary.yaml"
CLIENTS = 24
CROWD = 4.0
"""The clients ask this many times as fast as requests can be answered one after the other, if answers took no time.
Half of it is too much for the slow engine; all of it is not for the live one, on fast machines and on slow ones."""
WARM, TIMED = 3, 7
"""The first requests warm up, the others are timed."""
GOOD_LINE, SLOW_LINE = "max_batch_size: 16", "max_batch_size: 1"
REFUSED_AT = "step 2 of 2 (50 % of the requests)"


def write_specs(folder: Path) -> None:
    """Copy the repository's specs to a folder, and that of the canary, which the chapter changes."""
    folder.mkdir(parents=True, exist_ok=True)
    for spec in (*(REPOSITORY / "specs").glob("*.yaml"), SPEC):
        shutil.copy(spec, folder / spec.name)


@dataclass
class CanaryDemo(Demo):
    """The chapter."""

    specs: Path
    """The folder from which Airflow reads the spec."""

    def roll_back_a_canary(self) -> None:
        """Fifth release and its canary, which fails at its second step."""
        self._title(5, f"{GOOD_LINE} becomes {SLOW_LINE}: the gate passes it, the canary under real traffic does not")
        self._write(GOOD_LINE)
        outcome = outcome_of(self.airflow, self._release(self.spec.source.revision))
        self._expect(outcome.exit_code == 0, f"{self.spec.name} to go live", outcome.text)
        self._say(outcome.text)
        live = self._live_release()

        host, port = self.stack.serve_gateway()
        routes = self.settings.site().serving.routes
        assert routes is not None
        client = partial(Routed, known_as=routes.host.format(name=self.spec.name))
        target = self.spec.name, host, {"http": port}, self.spec.gate.smoke[0]
        pause_s = CLIENTS * _seconds_alone(client(*target)) / CROWD
        traffic = Traffic(*target, kinds=[client] * CLIENTS, pause_s=pause_s)
        self._say(f"{CLIENTS} clients will ask at the Gateway, {host}:{port}, with pauses of {pause_s:.2f} s")
        self._write(SLOW_LINE)
        with ExitStack() as started:

            def ended(view: RunView) -> bool:
                if gate_of(view) is not None and not traffic.has_begun:  # earlier they would slow the benchmark down
                    started.enter_context(traffic)
                return view.run.ended

            view = self._release(self.spec.source.revision, until=ended)
        gate = gate_of(view)
        self._expect(gate is not None and gate.verdict is Verdict.PASSED, "the gate to pass it", gate and gate.verdict)
        refusal = outcome_of(self.airflow, view).text
        self._expect(view.tasks["promote"].state == "failed", "promote to refuse it", view.tasks["promote"].state)
        self._expect(REFUSED_AT in refusal, f"the canary to fail at {REFUSED_AT}", refusal)
        self._expect(self._live_release() == live, f"{live} to stay live", self._live_release())
        self._say(refusal)
        self._count(traffic)

    def _write(self, line: str) -> None:
        """Write the spec with the line, at once: Airflow reads it at any moment."""
        write_private(self.specs / SPEC.name, SPEC.read_text().replace(GOOD_LINE, line, 1))


def _seconds_alone(client: Client) -> float:
    """The median time of a request that is alone."""
    times = []
    for _ in range(WARM + TIMED):
        began = time.monotonic()
        client.ask()
        times.append(time.monotonic() - began)
    client.close()
    return median(times[WARM:])
