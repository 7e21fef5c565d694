"""The boot test: starts a real Triton on a repository and expects a correct answer."""

import logging
import os
import re
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.process import Process, free_ports
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.pods.last_words import QUOTED_CHARS, last_words
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.serving.rendered.questions import request_of, timeout_s

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
POLL_S = 0.1
PROGRESS_S = 10.0
EXIT_TIMEOUT_S = 10
LOGGED_LINES = 40
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Triton's Python backend keeps its regions
REGIONS = "slipway-boot-"
"""Regions are named after the process that boots, so that those of a killed process can be removed."""
CRASHES = {code for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS) for code in (-number, 128 + number)}
"""Exit codes, the second of each that of mpirun. Triton's Python backend is known to crash occasionally, whatever the
model, as by boost::interprocess::lock_exception: https://github.com/triton-inference-server/server/issues/8882. As a
model loads it does so after giving up the model's process."""
MAY_PASS = re.compile(r"Stub process '.*' is not healthy|Failed to obtain the health mutex|Socket '.*' already in use")
"""What else it says, as it ends or as an answer, of what the next boot may not find. The first two are of a model's
process that died, or found no CPU for a second (as it starts, from 25.08 on, five, or ten before its first message;
python_backend's src/stub_launcher.cc), the third of a port that another process took while the model was loaded."""
CRASHED_S = 10.0
"""How long mpirun may take to end the other ranks after one has crashed."""


@dataclass(frozen=True)
class BootPlace:
    """Where a server is booted. No other server may share it."""

    repository: Path
    address: str
    ports: Mapping[str, int]
    """Ports by protocol, `http` and `grpc`."""
    shared_memory_prefix: str
    exit_timeout_s: int


Command = Callable[[BootPlace], list[str]]
"""Builds the command that starts the server in a place."""


@dataclass(frozen=True)
class BootAnswer:
    """A correct answer, and how long the server took to be ready and to answer."""

    text: str
    ready_s: float
    answer_s: float

    def as_json(self) -> dict[str, Any]:
        """The form that results and manifests record."""
        return {"answer": self.text, "ready_s": round(self.ready_s, 3), "answer_s": round(self.answer_s, 3)}


class CrashError(InputError):
    """The server ended in a way that a second boot may not repeat."""


class BootTest:
    """Starts Triton on a repository, sends one question, and always stops it."""

    def __init__(self, clock: Clock, folder: Path, command: Command, *, ready_timeout_s: float) -> None:
        """`folder` holds the server's log; the first word that `command` returns is looked up on PATH."""
        self._clock, self._folder, self._command, self._ready_timeout_s = clock, folder, command, ready_timeout_s

    def ask(self, repository: Path, model: str, question: SmokeQuestion) -> BootAnswer:
        """Boot `repository` on loopback and send `question` to `model`. A server that crashes is booted once more.

        Raises:
            InputError: the server ended, rejected the question, or gave a wrong answer.
            UnavailableError: the model was not ready in time.
        """
        _remove_left_regions()
        try:
            return self._ask(repository, model, question)
        except CrashError as error:
            log.warning(
                "%s. Triton or its Python backend may have crashed, or found no CPU or port: booting it once more",
                error.what,
            )
            return self._ask(repository, model, question)

    def _ask(self, repository: Path, model: str, question: SmokeQuestion) -> BootAnswer:
        http, grpc = free_ports(2, LOOPBACK)
        regions = f"{REGIONS}{os.getpid()}-{secrets.token_hex(4)}"
        place = BootPlace(repository, LOOPBACK, {"http": http, "grpc": grpc}, regions, EXIT_TIMEOUT_S)
        command = self._command(place)
        try:
            with (
                Process(command, self._folder / "tritonserver.log", grace_s=0) as server,  # nobody waits for answers
                TritonClient(LOOPBACK, http, grpc) as client,
            ):
                started = self._clock.monotonic()
                self._wait(server, client, model)
                ready_s = self._clock.monotonic() - started
                text = self._answer(server, client, model, question)
                return BootAnswer(text, ready_s, self._clock.monotonic() - started - ready_s)
        finally:
            for left in SHARED_MEMORY.glob(f"{regions}*"):
                left.unlink(missing_ok=True)  # a model's process that lost its server removes its own

    def _wait(self, server: Process, client: TritonClient, model: str) -> None:
        """Return once the model is ready, which proves only that it takes requests."""
        started = last_logged = self._clock.monotonic()
        while not client.is_ready(model):
            now = self._clock.monotonic()
            if server.exit_code is not None:
                crashed = server.exit_code in CRASHES or MAY_PASS.search("\n".join(server.tail(sys.maxsize)))
                raise (CrashError if crashed else InputError)(
                    f"Triton ended with exit code {server.exit_code} before {model} was ready",
                    found=_last_output(server),
                    expected="the model to load",
                    remedy="See the last lines of its log above.",
                )
            if now - started > self._ready_timeout_s:
                raise UnavailableError(
                    f"{model} was not ready after {self._ready_timeout_s:.0f} s (serving.ready_timeout_s)",
                    found=_last_output(server),
                    remedy="See the last lines of Triton's log above.",
                )
            if now - last_logged >= PROGRESS_S:
                log.info("waiting for %s: %.0f of %.0f s", model, now - started, self._ready_timeout_s)
                last_logged = now
            self._clock.sleep(POLL_S)

    def _answer(self, server: Process, client: TritonClient, model: str, question: SmokeQuestion) -> str:
        request = request_of(question)
        processes = frozenset(server.running())  # its models' among them
        try:
            text = client.generate(model, request, timeout_s(request)).text
        except (InputError, UnavailableError) as error:
            crashed = MAY_PASS.search(error.what) or (
                isinstance(error, UnavailableError) and self._crashed(server, processes)
            )
            raise (CrashError if crashed else InputError)(
                f"{model} is ready but did not answer {question.prompt!r}: {error.what}",
                found=_last_output(server),
                remedy="See the last lines of its log above." if crashed else error.remedy,
            ) from error
        if not question.accepts(text):
            raise InputError(
                f"{model} gave a wrong answer to {question.prompt!r}",
                found=f"{text.strip()[:QUOTED_CHARS]!r}",
                expected=f"({question.match}) {question.answer!r}",
                remedy=f"Check the checkpoint, its format and the template. {_last_output(server)}",
            )
        return text

    def _crashed(self, server: Process, processes: frozenset[int]) -> bool:
        """Whether a server that did not answer has crashed, or has lost one of the processes that it had."""
        deadline = self._clock.monotonic() + CRASHED_S
        while (code := server.exit_code) is None and self._clock.monotonic() < deadline:
            if not processes.issubset(server.running()):
                return True
            self._clock.sleep(POLL_S)
        return code in CRASHES


def _remove_left_regions() -> None:
    """Remove regions of boot tests that were killed. They vanish with a container, but stay on a laptop."""
    for region in SHARED_MEMORY.glob(f"{REGIONS}*"):
        owner = region.name.removeprefix(REGIONS).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            region.unlink(missing_ok=True)


def _last_output(server: Process) -> str:
    """Log the end of the server's log; return what it says of the reason."""
    log.error("last lines of Triton's log:\n%s", "\n".join(server.tail(LOGGED_LINES)))
    return f"last output: {last_words(server.tail(sys.maxsize)) or 'none'}"
