"""The clients of a load test in several processes, because one runs Python in one thread at a time.

Each process has its share of the clients. Requests of a closed loop are numbered by a counter that all share, so a
client that is free takes the next one wherever it runs. Rows of all processes are on one clock: time.monotonic is
CLOCK_MONOTONIC, which Linux keeps for the whole machine (clock_gettime(2)).

Processes are spawned, not forked: gRPC does not survive a fork. One ends at once when its parent is gone, however that
ended.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Self

from slipway.tasks.adapters.clock import SystemClock, cpu_seconds
from slipway.tasks.adapters.load.load_clients import Load, LoadClients, Share, Turn
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.measured.measurement import RequestRow

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from multiprocessing.sharedctypes import Synchronized

START_S = 60.0
"""How long a process may take to import what it needs, on a machine that is busy with others that start."""
LEAD_S = 0.05
"""Seconds from the message that starts the clients to the first arrival of an open loop, within which every process
reads the message."""
END_S = 8.0
"""How long killed processes may take to end, for which each needs a CPU."""


class LoadProcesses:
    """Processes that wait for turns until the block ends."""

    def __init__(self, load: Load, count: int) -> None:
        """Start `count` processes.

        Raises:
            PipelineError: one did not start.
        """
        context = multiprocessing.get_context("spawn")
        self._next: Synchronized[int] = context.Value("q", 0)
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        try:
            for index in range(count):
                here, there = context.Pipe()
                process = context.Process(
                    target=_work, args=(there, self._next, load, Share(index, count)), name=f"load {index}", daemon=True
                )
                process.start()
                there.close()
                self._pipes.append(here)
                self._processes.append(process)
            self._answers(START_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._processes)

    def play(self, turn: Turn) -> tuple[list[RequestRow], float]:
        """The rows of a turn, and the CPU seconds of the process that used most.

        Raises:
            PipelineError: a process ended, or failed.
        """
        self._next.value = 0
        self._send(turn)
        self._answers(None)  # every process is connected
        self._send(time.monotonic() + LEAD_S)
        answers = self._answers(None)
        return [row for rows, _ in answers for row in rows], max(cpu_s for _, cpu_s in answers)

    def close(self) -> None:
        """End every process. They have nothing to lose."""
        for process in self._processes:
            process.kill()
        deadline = time.monotonic() + END_S
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []

    def _send(self, message: Turn | float) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # it has ended; the answers say so
                pipe.send(message)

    def _answers(self, timeout_s: float | None) -> list[Any]:
        """What each process sends next, in the order of processes."""
        answers: dict[Any, Any] = {}
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while len(answers) < len(self._pipes):
            waiting = [pipe for pipe in self._pipes if pipe not in answers]
            ready = wait(waiting, None if deadline is None else max(0.0, deadline - time.monotonic()))
            if not ready:
                raise PipelineError(
                    "the processes of the load generator did not start",
                    found=f"{len(answers)} of {len(self._pipes)} after {timeout_s:g} s",
                    expected="all of them",
                    remedy="Give step benchmark's pod as many CPUs as it may use processes.",
                )
            for pipe in ready:
                answers[pipe] = self._received(self._pipes.index(pipe))  # type: ignore[arg-type]
        return [answers[pipe] for pipe in self._pipes]

    def _received(self, index: int) -> Any:
        try:
            answer = self._pipes[index].recv()
        except (EOFError, OSError):
            process = self._processes[index]
            process.join(END_S)
            raise PipelineError(
                "a process of the load generator ended before its turn did",
                found=_ending(process.exitcode),
                expected="one that runs until the step ends",
                remedy="If its pod was out of memory, give step benchmark more; otherwise run the step again.",
            ) from None
        if isinstance(answer, Exception):
            raise PipelineError(
                "a process of the load generator failed",
                found=f"{type(answer).__name__}: {answer}",
                expected="a row for each request, also for one that fails",
                remedy="This is an error of Slipway. Report it with the log of step benchmark.",
            ) from answer
        return answer


def _ending(code: int | None) -> str:
    return f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def _work(pipe: Connection, shared: "Synchronized[int]", load: Load, share: Share) -> None:
    """Play turns as they come, until the parent ends this process or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to every process; the parent ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    clients = LoadClients(load, SystemClock())
    pipe.send(None)

    def start() -> float:
        pipe.send(None)
        return float(pipe.recv())

    while True:
        turn, before_s = pipe.recv(), cpu_seconds()
        try:
            rows = clients.play(turn, _taken(shared, turn.requests), start, share)
        except Exception as error:  # noqa: BLE001 - the parent raises it
            pipe.send(error)
        else:
            pipe.send((rows, cpu_seconds() - before_s))


def _taken(shared: "Synchronized[int]", requests: int) -> Any:
    def take() -> int | None:
        with shared.get_lock():
            number = shared.value
            shared.value = number + 1
        return number if number < requests else None

    return take


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
