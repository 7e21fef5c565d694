"""The engine in a process of its own, and the way to it: an EngineProcess is an Engine.

ContinuousBatchingPipeline.step of OpenVINO GenAI (2026.4) keeps Python's lock until it returns. In one process nothing
else runs while the model computes: each tokenization and each response waits for several steps to end.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from generation.running.restarts import EngineError
from generation.runtime import Progress, Runtime, Sampling, TokenLogprob
from generation.workers.worker import python

AHEAD = 16
"""The child makes so many steps before the first of them has been read. With many more, a full socket could keep both
sides from sending, and what follows a stop word would be computed for longer."""
PAUSE_S = 0.01
"""Steps that end sooner after a message share the next one, AHEAD / 2 of them at most: one costs both ends 0.15 ms of
CPU together, and clients get what was made within 10 ms in one response anyway (generation/running/delivery.py)."""
END_S = 5.0
"""How long the process may take to end: it looks at its socket after each step."""
STALL_S = 120.0
"""A step that takes longer has stopped: a prompt is read in parts, of which each is one."""


class EngineProcess:
    """A Runtime whose engine is in a child, which ends with this process whatever ends it."""

    def __init__(
        self, engine: Path, scheduler: Mapping[str, Any], properties: Mapping[str, Any], *, scores_prompts: bool = False
    ) -> None:
        """Start the child and wait until it has loaded the engine; see openvino_runtime.load.

        Raises:
            EngineError: it could not be loaded.
        """
        ours, its = socket.socketpair()
        with its:
            self._child = subprocess.Popen(  # noqa: S603 - this file
                [python(), __file__, str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection = Connection(ours.detach())
        self._running: set[int] = set()
        self._read = 0
        self._closing = False
        self._over = threading.Event()
        try:
            self._send((engine, dict(scheduler), dict(properties), scores_prompts))
            self.max_new_tokens: int = self._receive()
            """What an answer has at most, by the model's own generation config."""
        except EngineError:
            self.close()
            raise

    def watch(self, on_end: Callable[[], None]) -> None:
        """Have `on_end` called if the child ends before it is closed; `step` then raises, be it idle or not."""

        def wait() -> None:
            self._child.wait()
            self._over.set()
            if not self._closing:
                on_end()

        threading.Thread(target=wait, name="engine-process", daemon=True).start()

    def add(self, number: int, prompt: Sequence[int], sampling: Sampling) -> None:
        """It joins the child's batch before the next step."""
        self._running.add(number)
        self._send(("add", number, list(prompt), sampling))

    def step(self) -> list[Progress]:
        """The child's next steps, waiting for one if something runs."""
        if not self._running:
            if self._over.is_set():
                raise self._ended()
            return []
        made, fields = self._receive(STALL_S)
        steps = [_progress(*each) for each in fields]
        self._running -= {step.number for step in steps if step.finish_reason or step.failure}
        self._read += made
        if self._read >= AHEAD // 2:
            self._send(("read", self._read))
            self._read = 0
        return steps

    def cancel(self, number: int) -> None:
        """The child frees it before the next step; what it made before may still be reported."""
        self._running.discard(number)
        self._send(("cancel", number))

    def has_work(self) -> bool:
        """False: the child frees what was cancelled by itself."""
        return False

    def close(self) -> None:
        """End the child."""
        if not self._closing:
            self._closing = True
            self._connection.close()
            self._wait()

    def _wait(self) -> int:
        """The exit code of the child, which is ending."""
        try:
            return self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._ended() from error

    def _receive(self, within_s: float | None = None) -> Any:
        try:
            if not self._connection.poll(within_s):
                self._child.kill()
            failed, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if failed:
            raise EngineError(answer)
        return answer

    def _ended(self) -> EngineError:
        with contextlib.suppress(EOFError, OSError):
            while self._connection.poll():  # its last words, unread by whoever could send no more
                failed, answer = self._connection.recv()
                if failed:
                    return EngineError(answer)
        code = self._wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        return EngineError(
            f"the engine's process {how}; see the server's log above. Signal 9 may mean too little memory"
        )


def _progress(*fields: Any) -> Progress:
    *others, logprobs, of_prompt = fields
    return Progress(*others, *([TokenLogprob(*each) for each in listed] for listed in (logprobs, of_prompt)))


def _fields(step: Progress) -> tuple[Any, ...]:
    logprobs = [
        [(each.token, each.logprob, each.alternatives) for each in listed]
        for listed in (step.logprobs, step.prompt_logprobs)
    ]
    return step.number, list(step.tokens), step.finish_reason, step.failure, *logprobs


class Reports:
    """The way of steps to the other end. `unread` is how many have not been read, as far as is known."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._sent_at, self.unread = connection, 0.0, 0
        self._made, self._steps = 0, list[Progress]()
        self._new: set[int] = set()

    def expect(self, number: int) -> None:
        """A client waits for the first token of this request."""
        self._new.add(number)

    def forget(self, number: int) -> None:
        """Nobody waits for it any more."""
        self._new.discard(number)

    def add(self, steps: Sequence[Progress]) -> None:
        """Send what a step made, now or with those that follow."""
        self._steps += steps
        self._made += 1
        self.unread += 1
        is_awaited = any(step.finish_reason or step.failure or step.number in self._new for step in steps)
        self._new.difference_update(step.number for step in steps)
        if is_awaited or self._made >= AHEAD // 2 or time.monotonic() >= self._sent_at + PAUSE_S:
            self.send()

    def send(self) -> None:
        """Send what was added."""
        if self._made:
            self._connection.send((False, (self._made, [_fields(step) for step in self._steps])))
            self._made, self._steps, self._sent_at = 0, [], time.monotonic()


def serve(connection: Connection, runtime: Runtime) -> NoReturn:
    """Take requests and report steps until the other end closes.

    Raises:
        EOFError: it did.
    """
    commands, reports = select.poll(), Reports(connection)
    commands.register(connection.fileno(), select.POLLIN)
    while True:
        may_step = reports.unread < AHEAD and runtime.has_work()
        if not may_step:
            reports.send()
        if commands.poll(0 if may_step else None):
            what, *arguments = connection.recv()
            if what == "read":
                reports.unread -= arguments[0]
            elif what == "add":
                reports.send()  # the prompt may make the next step a long one
                runtime.add(*arguments)
                reports.expect(arguments[0])
            else:
                reports.send()  # as above: a prompt may have waited for its place
                runtime.cancel(*arguments)
                reports.forget(*arguments)
        else:
            steps = runtime.step()
            if steps or runtime.has_work():  # of a long prompt many make no token, and silence is taken for a stall
                reports.add(steps)


def main(descriptor: int) -> int:
    """Load the engine and serve; 1 after a failure, which the other end has been told of."""
    for each in (signal.SIGINT, signal.SIGTERM):  # the server finishes what runs first, and then closes its end
        signal.signal(each, signal.SIG_IGN)
    from openvino_runtime import load

    with Connection(descriptor) as connection:
        try:
            runtime = load(*connection.recv())
            connection.send((False, runtime.max_new_tokens))
            serve(connection, runtime)
        except (EOFError, ConnectionError):  # nobody is left to tell
            return 0
        except Exception as error:  # noqa: BLE001 - whatever a vendor's runtime raises, its clients are told
            connection.send((True, f"{type(error).__name__}: {error}"))
            return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
