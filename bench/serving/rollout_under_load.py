"""`python -m bench.serving.rollout_under_load SPEC REVISION`: what clients notice of two promotions and a rollback.

Releases REVISION of the spec's model, rolls it back and releases it again, while clients ask the live Service in an
open loop: requests arrive at random (Poisson) at a steady rate, whatever the server does, and a request's time counts
from its arrival, also while it waits for a free client. Clients are of five kinds, each with its share: HTTP and gRPC,
whole answers and streams, kept and new connections. They retry nothing, and check each answer by the spec's first smoke
question. None of so few clients is silent for 10 s, after which a pod that ends closes an HTTP connection, perhaps just
as a request is sent (docs/decisions/0015). A probe asks OpenAI's API over a new connection each time, which says what
release answered.

Works on whatever the `slipway` command is set to: the stack of this checkout (`make up` or `make demo`), or another
cluster by SLIPWAY_SITE, SLIPWAY_AIRFLOW and KUBECONFIG. The Service must be reachable from here; --at gives it another
address. Exit 1 if a request failed.
"""

import argparse
import http.client
import json
import os
import platform
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Self

from demo.traffic import CLIENTS, Client, FreshHttp
from slipway.cli.settings import Settings
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.document_files import read_document
from slipway.tasks.rollout.act.server_target import selected

KINDS = (*CLIENTS, FreshHttp)
STEADY_S = 20.0
"""Before the first change, and after each: longer than a kept connection lives in a release that traffic has left."""
PROBE_EVERY_S, PROBE_TIMEOUT_S = 0.05, 30.0
SEED = 1


@dataclass(frozen=True)
class Row:
    """One request, in monotonic seconds."""

    kind: str
    arrived_s: float
    began_s: float
    ended_s: float
    failure: str = ""


@dataclass
class OpenLoop:
    """Requests that arrive at `rate` per second, for as long as the context lasts."""

    spec: ReleaseSpec
    question: SmokeQuestion
    address: ServiceAddress
    rate: float
    clients: int
    """Clients of each kind: so many of its requests can be under way at once."""
    rows: list[Row] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._waiting: list[queue.SimpleQueue[float | None]] = [queue.SimpleQueue() for _ in KINDS]
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), daemon=True)
            for number in range(len(KINDS))
            for _ in range(self.clients)
        ]
        self._arrivals = threading.Thread(target=self._arrive, daemon=True)
        for thread in (*self._threads, self._arrivals):
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._arrivals.join()
        for waiting in self._waiting:
            for _client in range(self.clients):
                waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _arrive(self) -> None:
        chance, at_s = random.Random(SEED), time.monotonic()  # noqa: S311 - arrivals, not secrets
        while not self._over.wait(max(0.0, at_s - time.monotonic())):
            self._waiting[chance.randrange(len(KINDS))].put(at_s)
            at_s += chance.expovariate(self.rate)

    def _serve(self, number: int) -> None:
        client = KINDS[number](self.spec.name, self.address.host, self.address.ports, self.question)
        while (arrived_s := self._waiting[number].get()) is not None:
            began_s, failure = time.monotonic(), self._ask(client)
            self.rows.append(Row(client.name, arrived_s, began_s, time.monotonic(), failure))
        client.close()

    def _ask(self, client: Client) -> str:
        try:
            text = client.ask()
        except Exception as error:  # noqa: BLE001 - to a client every error is a failed request
            return f"{type(error).__name__}: {error}"
        return "" if self.question.accepts(text) else f"answered {text!r}"


class Probe(threading.Thread):
    """Which release the live Service selects, and which one answers on a new connection, all the time."""

    def __init__(self, spec: ReleaseSpec, cluster: Cluster, address: ServiceAddress) -> None:
        super().__init__(daemon=True)
        self._name, self._cluster, self._address = spec.name, cluster, address
        self.selected: list[tuple[float, str]] = []
        self.answered: list[tuple[float, float, str]] = []
        """Began, ended, release."""

    def run(self) -> None:
        """Ask on until the process ends."""
        watching = threading.Thread(target=self._watch, daemon=True)
        watching.start()
        while True:
            began_s = time.monotonic()
            release = self._ask()
            self.answered.append((began_s, time.monotonic(), release))
            time.sleep(PROBE_EVERY_S)

    def _watch(self) -> None:
        while True:
            service = self._cluster.get("Service", self._name)
            live = selected(service["spec"].get("selector") or {}, self._name) if service else None
            if live and (not self.selected or self.selected[-1][1] != live):
                self.selected.append((time.monotonic(), live))
            time.sleep(PROBE_EVERY_S)

    def _ask(self) -> str:
        connection = http.client.HTTPConnection(
            self._address.host, self._address.ports["http"], timeout=PROBE_TIMEOUT_S
        )
        body = {"model": self._name, "prompt": "What", "max_tokens": 1}
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            return str(json.loads(connection.getresponse().read())["system_fingerprint"])
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            return f"failed: {type(error).__name__}: {error}"
        finally:
            connection.close()


@dataclass(frozen=True)
class Phase:
    """A part of the run. A change has a command and took that long; a steady part has none."""

    name: str
    began_s: float
    ended_s: float


def main(arguments: Sequence[str]) -> int:
    """Print a line for each part of the run and for each flip; 1 if a request failed or a command did."""
    asked = parsed(arguments)
    spec = read_contract(ReleaseSpec, read_document(asked.spec), str(asked.spec))
    cluster = Settings.resolve(os.environ).cluster()
    address = at(asked.at) if asked.at else cluster.live_address(spec.name)
    if address is None:
        print(f"{spec.name} is not live; release it first", file=sys.stderr)
        return 65
    changes = {
        f"release {asked.revision}": ["release", spec.name, "--revision", asked.revision],
        "roll back": ["rollback", spec.name, "--direct", "--reason", "bench.serving.rollout_under_load"],
        f"release {asked.revision} again": ["release", spec.name, "--revision", asked.revision],
    }
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; {asked.rate:g} requests/s")
    probe = Probe(spec, cluster, address)
    probe.start()
    phases: list[Phase] = []
    with OpenLoop(spec, spec.gate.smoke[0], address, asked.rate, asked.clients) as load:
        phases.append(steady("before"))
        for name, command in changes.items():
            began_s = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "slipway", *command], capture_output=True, text=True, check=False
            )
            phases.append(Phase(name, began_s, time.monotonic()))
            if done.returncode:
                print(
                    f"slipway {' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
                )
                return 1
            phases.append(steady(f"after: {name}"))
        while len(load.rows) < asked.requests:
            phases.append(steady("and on"))
    return report(load, probe, phases)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser("bench.serving.rollout_under_load", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spec", type=Path, help="the spec of a model that is live")
    parser.add_argument("revision", help="a revision that is not live now")
    parser.add_argument("--rate", type=float, default=30.0, help="requests per second")
    parser.add_argument("--requests", type=int, default=10_000, help="go on until so many were answered")
    parser.add_argument("--clients", type=int, default=4, help="clients of each kind")
    parser.add_argument("--at", metavar="HOST:HTTP:GRPC", help="the Service's address as seen from here")
    return parser.parse_args(arguments)


def at(text: str) -> ServiceAddress:
    """The address in --at."""
    host, http_port, grpc_port = text.rsplit(":", 2)
    return ServiceAddress(host, {"http": int(http_port), "grpc": int(grpc_port)})


def steady(name: str) -> Phase:
    """Wait while nothing changes."""
    began_s = time.monotonic()
    time.sleep(STEADY_S)
    return Phase(name, began_s, time.monotonic())


def report(load: OpenLoop, probe: Probe, phases: Sequence[Phase]) -> int:
    """Print what was measured; 1 if a request failed."""
    print(f"{'':28} {'s':>6} {'requests':>9} {'failed':>7} {'p50 ms':>8} {'p99 ms':>8}")
    for phase in phases:
        print(line(phase, [row for row in load.rows if phase.began_s <= row.arrived_s < phase.ended_s]))
    print(line(Phase("whole run", phases[0].began_s, phases[-1].ended_s), load.rows))
    for kind in sorted({row.kind for row in load.rows}):
        rows = [row for row in load.rows if row.kind == kind]
        print(f"  {kind:26} {'':6} {len(rows):9} {sum(bool(row.failure) for row in rows):7}")
    for number, (changed_s, release) in enumerate(probe.selected[1:], start=1):
        print(flip(probe, number, changed_s, release))
    waits = [1000 * (row.began_s - row.arrived_s) for row in load.rows]
    print(f"a request waited for a free client: p99 {quantiles(waits, n=100)[98]:.0f} ms")
    failures = [row.failure for row in load.rows if row.failure]
    failures += [release for *_, release in probe.answered if release.startswith("failed")]
    for failure in failures[:5]:
        print(f"failed: {failure[:300]}")
    print(f"{len(load.rows)} requests and {len(probe.answered)} of the probe, {len(failures)} failed; goal 0")
    return 1 if failures else 0


def flip(probe: Probe, number: int, changed_s: float, release: str) -> str:
    """When new connections reached the release that the Service selects from `changed_s` on, and not the one before."""
    before = probe.selected[number - 1][1]
    until_s = probe.selected[number + 1][0] if number + 1 < len(probe.selected) else float("inf")
    answers = [answer for answer in probe.answered if changed_s < answer[1] < until_s]
    old = [ended_s - changed_s for _, ended_s, name in answers if name == before]
    new = [ended_s - changed_s for began_s, ended_s, name in answers if name == release and began_s >= changed_s]
    last = f"the last one by {before} {max(old):.2f} s after it" if old else f"none by {before} any more"
    first = f"the first one {min(new):.2f} s after it" if new else "none by it"
    return f"Service changed to {release}: of the answers on new connections {first}, {last}"


def line(phase: Phase, rows: Sequence[Row]) -> str:
    """One part of the table."""
    failed = sum(bool(row.failure) for row in rows)
    shown = f"{phase.name:28} {phase.ended_s - phase.began_s:6.1f} {len(rows):9} {failed:7}"
    if not rows[1:]:
        return shown
    cuts = quantiles([1000 * (row.ended_s - row.arrived_s) for row in rows], n=100)
    return f"{shown} {cuts[49]:8.0f} {cuts[98]:8.0f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
