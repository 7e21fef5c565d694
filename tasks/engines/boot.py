"""The boot test: a repository counts as working once real Triton, started on it, gave a right answer."""

import logging
import os
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.adapters.clock import Clock
from tasks.adapters.process import Process, free_ports
from tasks.adapters.triton import GenerateRequest, TritonClient
from tasks.contracts.errors import InputError, UnavailableError
from tasks.contracts.spec import SmokeQuestion

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
POLL_S = 0.1
PROGRESS_S = 10.0
ANSWER_TIMEOUT_S = 60.0
EXIT_TIMEOUT_S = 10
LOGGED_LINES = 40
QUOTED_CHARS = 256
QUOTED_LINES = 2
ERROR_LINE = re.compile(r"[EF][0-9]{4} |error: ")
"""Glog's severity and date, as Triton 2.51 writes them, and what it says as it gives up."""
NO_GPU = "CudaDriverHelper"
"""In the error that Triton writes at every start without a GPU."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Triton's Python backend keeps its regions
REGIONS = "slipway-boot-"
"""Regions are named after the process that boots, so that those of a killed one can be told and removed."""


@dataclass(frozen=True)
class BootPlace:
    """Where a server is booted, which no other one may share."""

    repository: Path
    address: str
    ports: Mapping[str, int]
    """Of `http` and `grpc`."""
    shared_memory_prefix: str
    exit_timeout_s: int


Command = Callable[[BootPlace], list[str]]
"""The words that start the server in a place."""


@dataclass(frozen=True)
class BootAnswer:
    """A right answer, and how long it took to get there."""

    text: str
    ready_s: float
    answer_s: float

    def as_json(self) -> dict[str, Any]:
        """As a result and a manifest record it."""
        return {"answer": self.text, "ready_s": round(self.ready_s, 3), "answer_s": round(self.answer_s, 3)}


class BootTest:
    """Starts Triton on a repository, asks one question and ends it again, whatever happened."""

    def __init__(self, clock: Clock, folder: Path, command: Command, *, ready_timeout_s: float) -> None:
        """`folder` takes the server's log; `command` gives words of which the first is looked up on PATH."""
        self._clock, self._folder, self._command, self._ready_timeout_s = clock, folder, command, ready_timeout_s

    def ask(self, repository: Path, model: str, question: SmokeQuestion) -> BootAnswer:
        """Boot `repository` on loopback and ask `model`.

        Raises:
            InputError: the server ended, refused the question, or gave a wrong answer.
            UnavailableError: the model was not ready in time.
        """
        http, grpc = free_ports(2, LOOPBACK)
        regions = f"{REGIONS}{os.getpid()}-{secrets.token_hex(4)}"
        place = BootPlace(repository, LOOPBACK, {"http": http, "grpc": grpc}, regions, EXIT_TIMEOUT_S)
        command = self._command(place)
        _remove_left_regions()
        try:
            with (
                Process(command, self._folder / "tritonserver.log", grace_s=2 * EXIT_TIMEOUT_S) as server,
                TritonClient(LOOPBACK, http, grpc) as client,
            ):
                started = self._clock.monotonic()
                self._wait(server, client, model)
                ready_s = self._clock.monotonic() - started
                text = self._answer(server, client, model, question)
                return BootAnswer(text, ready_s, self._clock.monotonic() - started - ready_s)
        finally:
            for left in SHARED_MEMORY.glob(f"{regions}*"):
                left.unlink()

    def _wait(self, server: Process, client: TritonClient, model: str) -> None:
        """Return once the model is ready, which proves only that it may be asked."""
        started = last_logged = self._clock.monotonic()
        while not client.is_ready(model):
            now = self._clock.monotonic()
            if server.exit_code is not None:
                raise InputError(
                    f"Triton ended with exit code {server.exit_code} before {model} was ready; expected it to load. "
                    f"{_quoted(server)}"
                )
            if now - started > self._ready_timeout_s:
                raise UnavailableError(
                    f"{model} was not ready after {self._ready_timeout_s:.0f} s (serving.ready_timeout_s). "
                    f"{_quoted(server)}"
                )
            if now - last_logged >= PROGRESS_S:
                log.info("waiting for %s: %.0f of %.0f s", model, now - started, self._ready_timeout_s)
                last_logged = now
            self._clock.sleep(POLL_S)

    def _answer(self, server: Process, client: TritonClient, model: str, question: SmokeQuestion) -> str:
        request = GenerateRequest(question.prompt, question.max_tokens, lora=question.lora)
        try:
            text = client.generate(model, request, ANSWER_TIMEOUT_S).text
        except (InputError, UnavailableError) as error:
            raise InputError(
                f"Triton said {model} is ready, yet to {question.prompt!r} it gave no answer: {error} {_quoted(server)}"
            ) from error
        if not question.accepts(text):
            raise InputError(
                f"{model} was asked {question.prompt!r}, answered {text.strip()[:QUOTED_CHARS]!r}, "
                f"expected ({question.match}) {question.answer!r}. Checkpoint, format or template is wrong. "
                f"{_quoted(server)}"
            )
        return text


def _remove_left_regions() -> None:
    """Those of boot tests that were killed: with a container they vanish, on a laptop nobody else removes them."""
    for region in SHARED_MEMORY.glob(f"{REGIONS}*"):
        owner = region.name.removeprefix(REGIONS).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            region.unlink(missing_ok=True)


def _quoted(server: Process) -> str:
    """The end of the server's log: whole in ours; in a message its last errors, or else its last lines, cut."""
    lines = server.tail(LOGGED_LINES)
    log.error("last lines of Triton's log:\n%s", "\n".join(lines))
    errors = [line for line in server.tail(sys.maxsize) if ERROR_LINE.match(line) and NO_GPU not in line]
    chosen = (errors or lines)[-QUOTED_LINES:]
    return f"Its last words: {' | '.join(line[: QUOTED_CHARS // QUOTED_LINES] for line in chosen) or 'none'}"
