"""A process of its own for work on what a stranger sent: it has a deadline and a memory limit, and may die of it.

Requests and answers are JSON, so that nothing of the child is ever run here.
"""

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any

START_S = 120.0
END_S = 5.0


class WorkError(Exception):
    """The work cannot be done; the message says why, as the end of a sentence about it."""


@dataclass(frozen=True)
class Budget:
    """What one piece of work may take. Memory is that of the whole process beyond what its program needs."""

    seconds: float
    memory_bytes: int


class Worker:
    """Works in a child, one request after another. It is started with the first one, and again after it ended."""

    def __init__(self, program: Sequence[str], budget: Budget) -> None:
        """`program` is a script of Python, with arguments, whose `main` calls `serve`."""
        self._program, self._budget = list(program), budget
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def ask(self, request: Any) -> Any:
        """The answer of the child's `work`.

        Raises:
            WorkError: it raised something, took too long, or ended its process.
        """
        with self._lock:
            connection = self._connection or self._started()
            try:
                connection.send_bytes(json.dumps(request).encode())
                return self._answer(connection, self._budget.seconds)
            except OSError as error:
                self.close()
                raise WorkError("ended the process that worked on it") from error

    def close(self) -> None:
        """End the child."""
        if self._connection is not None:
            self._connection.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._connection = self._child = None

    def _started(self) -> Connection:
        ours, its = socketpair()
        memory = str(self._budget.memory_bytes)
        with its:
            self._child = subprocess.Popen(  # noqa: S603 - a file beside this one
                [python(), *self._program, str(its.fileno()), memory],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection = Connection(ours.detach())
        try:
            self._answer(self._connection, START_S)
        except (OSError, WorkError):
            self.close()
            raise
        return self._connection

    def _answer(self, connection: Connection, within_s: float) -> Any:
        if not connection.poll(within_s):
            self.close()
            raise WorkError(f"took more than {within_s:g} s")
        try:
            done, answer = json.loads(connection.recv_bytes())
        except EOFError as error:
            raise ConnectionError from error
        if not done:
            raise WorkError(answer)
        return answer


def serve(descriptor: int, memory_bytes: int, prepare: Callable[[], Callable[[Any], Any]]) -> int:
    """In the child: answer requests by what `prepare` makes, until the other end closes."""
    with Connection(descriptor) as connection:
        try:
            work = prepare()
            _limit(memory_bytes)
            _send(connection, done=True, answer=None)
        except Exception as error:  # noqa: BLE001 - the other end is told of whatever it is
            _send(connection, done=False, answer=_text(error))
            return 1
        with suppress(EOFError, ConnectionError):
            while True:
                _work(connection, work)
        return 0


def _work(connection: Connection, work: Callable[[Any], Any]) -> None:
    request = json.loads(connection.recv_bytes())
    try:
        answer, done = work(request), True
    except Exception as error:  # noqa: BLE001 - a stranger's input may raise anything
        answer, done = _text(error), False
    _send(connection, done=done, answer=answer)


def _send(connection: Connection, *, done: bool, answer: Any) -> None:
    connection.send_bytes(json.dumps((done, answer)).encode())


def _text(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1][:256]


def _limit(memory_bytes: int) -> None:
    """Limit private memory to what the process has now and so much more."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    most = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def python() -> str:
    """The interpreter of this process: Triton's stub has embedded it and may not know its file."""
    named = Path(sys.executable or "")
    if named.name.startswith("python"):
        return str(named)
    return str(Path(sys.exec_prefix, "bin", "python3"))
