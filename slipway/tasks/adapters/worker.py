"""A process of its own for work on what a stranger sent: it has a deadline and a memory limit, and may die of it.

Requests and answers are JSON, so that nothing of the child is ever run here.
"""

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any

START_S = 120.0
LOOK_S = 0.05
"""How often the child's CPU time is read while it works."""
LONG_CPU_S = 0.25
"""Work that takes more of a CPU is long: Workers limits how much of it goes on at a time."""
TICKS = os.sysconf("SC_CLK_TCK")
HARMLESS = ("PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "LANG", "LC_", "OMP_", "PYTHON", "HF_HUB_DISABLE_")
"""How the names begin of what a child gets of the environment."""


class WorkError(Exception):
    """The work failed; the message is what it raised."""


class LimitError(WorkError):
    """The work went beyond its budget or ended its process; the message is the end of a sentence about the work."""


class UnansweredError(LimitError):
    """The process did not start, ended, or went beyond its time on the clock: on a quieter machine it may answer."""


class BusyError(Exception):
    """Too much other work is going on; the message asks the client to send the request again."""


@dataclass(frozen=True)
class Budget:
    """What one piece of work may take.

    CPU seconds are what the work itself uses; `seconds` is a longer time on the clock, for work that waits. Memory is
    that of the whole process beyond what its program needs.
    """

    cpu_s: float
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

    def ask(self, request: Any, on_long: Callable[[], None] = lambda: None) -> Any:
        """The answer of the child's `work`. `on_long` is called once if it takes long; what it raises ends the work.

        Raises:
            WorkError: it raised something.
            LimitError: it took too much of a CPU.
            UnansweredError: no answer came.
        """
        with self._lock:
            connection = self._connection or self._started()
            try:
                self._limit_cpu()
                connection.send_bytes(json.dumps(request).encode())
                self._wait(connection, on_long)
                return _answer(connection)
            except OSError as error:
                self.close()
                raise UnansweredError("ended the process that worked on it") from error

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
                env={**harmless_environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection = Connection(ours.detach())
        try:
            if not self._connection.poll(START_S):
                raise TimeoutError(f"it took more than {START_S:g} s")
            _answer(self._connection)
        except (OSError, WorkError) as error:
            self.close()
            raise UnansweredError(f"could not start its process: {_text(error)}") from error
        return self._connection

    def _wait(self, connection: Connection, on_long: Callable[[], None]) -> None:
        """Wait for the answer; end the child if it, or `on_long`, raises."""
        began, cpu_before, is_long = time.monotonic(), self._cpu_s(), False
        try:
            while not connection.poll(LOOK_S):
                used = self._cpu_s() - cpu_before
                _check(used, self._budget.cpu_s, " of a CPU", LimitError)
                _check(time.monotonic() - began, self._budget.seconds, "", UnansweredError)
                if used > LONG_CPU_S and not is_long:
                    is_long = True
                    on_long()
        except (BusyError, LimitError):
            self.close()
            raise

    def _limit_cpu(self) -> None:
        """Have the kernel end the child's work too, in whole seconds: this process may be killed meanwhile."""
        if self._child is not None:
            most = ceil(self._cpu_s() + self._budget.cpu_s) + 1
            _, hard = resource.prlimit(self._child.pid, resource.RLIMIT_CPU)
            within = most if hard == resource.RLIM_INFINITY else min(most, hard)  # whoever started us may have set one
            resource.prlimit(self._child.pid, resource.RLIMIT_CPU, (within, hard))

    def _cpu_s(self) -> float:
        """CPU seconds of the child, of all its threads: fields utime and stime of proc_pid_stat(5)."""
        if self._child is None:
            return 0.0
        stat = Path(f"/proc/{self._child.pid}/stat").read_text(encoding="utf-8", errors="replace")
        return sum(map(int, stat.rpartition(")")[2].split()[11:13])) / TICKS


class Workers:
    """Several Workers over one program, for several threads. Nothing waits for one of them.

    Half of them may do long work at a time, so that the others are there for work that is short.
    """

    def __init__(self, program: Sequence[str], budget: Budget, *, count: int) -> None:
        self._all = [Worker(program, budget) for _ in range(count)]
        self._free = list(self._all)
        """The last one that was freed is asked first: the others may never have to start."""
        self._long = threading.BoundedSemaphore(max(1, count // 2))

    def ask(self, request: Any) -> Any:
        """The answer of a child's `work`.

        Raises:
            WorkError: as Worker.ask.
            BusyError: all children work, or too many others do long work already.
        """
        try:
            worker = self._free.pop()
        except IndexError as error:
            raise BusyError(f"{len(self._all)} requests are being prepared. Ask again.") from error
        try:
            with ExitStack() as until_answered:
                return worker.ask(request, partial(self._begin_long, until_answered))
        finally:
            self._free.append(worker)

    def close(self) -> None:
        """End the children."""
        for worker in self._all:
            worker.close()

    def _begin_long(self, until_answered: ExitStack) -> None:
        if not self._long.acquire(blocking=False):
            raise BusyError("too many requests that take long to prepare came at once. Ask again.")
        until_answered.callback(self._long.release)


def _check(used_s: float, limit_s: float, what: str, error: type[LimitError]) -> None:
    if used_s > limit_s:
        raise error(f"took more than {limit_s:g} s{what}")


def _answer(connection: Connection) -> Any:
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


def harmless_environment() -> dict[str, str]:
    """The environment of a process that works on what a stranger sent: what Python needs, and no secret."""
    return {name: value for name, value in os.environ.items() if name.startswith(HARMLESS)}


def python() -> str:
    """The interpreter of this process: Triton's stub has embedded it and may not know its file."""
    named = Path(sys.executable or "")
    if named.name.startswith("python"):
        return str(named)
    return str(Path(sys.exec_prefix, "bin", "python3"))
