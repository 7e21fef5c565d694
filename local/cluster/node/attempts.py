"""One attempt to run a container, on disk: its folder, its shim and its records.

The folder holds the state, not the server's memory; a restarted server reads it and continues.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import shim
from .confinement import View

SHIM = Path(shim.__file__)
KEPT_ATTEMPTS = 2  # this one and the one that `kubectl logs --previous` shows
START_WAIT_S = 10.0
POLL_S, ENDING_POLL_S = 0.1, 0.02
LOST = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "The container's shim ended without a record."}


@dataclass(frozen=True)
class Attempt:
    """The `number`th start of a container, from 0."""

    folder: Path
    number: int

    @property
    def log(self) -> Path:
        """The CRI log."""
        return self.folder / "log"

    @property
    def termination_log(self) -> Path:
        """The file behind the container's terminationMessagePath."""
        return self.folder / "termination-log"

    @property
    def identifier(self) -> str:
        """The containerID in statuses."""
        return f"process://{self.folder.parents[2].name}/{self.folder.parent.name}/{self.number}"

    def started(self) -> dict[str, Any] | None:
        """pid, start ticks and startedAt; None before the start and for a command that could not be started."""
        return _read(self.folder / "started.json")

    def ended(self) -> dict[str, Any] | None:
        """exitCode, reason, startedAt, finishedAt. If the shim has vanished, this records it."""
        record = _read(self.folder / "exit.json")
        if record is None and not self._shim_runs():
            # The shim may have written its record between the two reads.
            record = _read(self.folder / "exit.json") or self._record_lost()
        return record

    def known(self) -> bool:
        """Whether the shim has recorded the result of the start."""
        return self.started() is not None or self.ended() is not None

    def terminate(self) -> None:
        """SIGTERM to the container's process group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to every process of the container."""
        self._signal(signal.SIGUSR1)

    async def wait(self, shims: "Shims") -> None:
        """Return once the container has ended; `shims` may have started it."""
        pid = (_read(self.folder / "shim.json") or {}).get("pid")
        while self.ended() is None:
            await _exit_of(pid)
            shims.reap()  # a zombie would seem to run

    def _shim_runs(self) -> bool:
        record = _read(self.folder / "shim.json")
        return record is not None and shim.start_ticks(record["pid"]) == record["started"]

    def _record_lost(self) -> dict[str, Any]:
        started = self.started()
        if started is not None and shim.start_ticks(started["pid"]) == started["started"]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started["pid"], signal.SIGKILL)
        record = LOST | {"startedAt": (started or {}).get("startedAt", shim.stamp()), "finishedAt": shim.stamp()}
        with contextlib.suppress(FileNotFoundError):
            shim.write(self.folder / "exit.json", record)
        return record

    def _signal(self, number: signal.Signals) -> None:
        record = _read(self.folder / "shim.json")
        if record is not None and shim.start_ticks(record["pid"]) == record["started"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(record["pid"], number)


class Shims:
    """The shims that this server has started. A restarted server has not started those that it finds."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def add(self, shim_process: subprocess.Popen[bytes]) -> None:
        """Keep a shim until it has ended."""
        self.reap()
        self._running.append(shim_process)

    def reap(self) -> None:
        """Forget the shims that have ended, so that none stays a zombie."""
        self._running = [each for each in self._running if each.poll() is None]


def latest(container: Path) -> Attempt | None:
    """The newest attempt in a container's folder."""
    numbers = _numbers(container)
    return Attempt(container / str(numbers[-1]), numbers[-1]) if numbers else None


def find(container: Path, number: int) -> Attempt | None:
    """An attempt whose folder is still kept."""
    return Attempt(container / str(number), number) if number in _numbers(container) else None


def log_bytes(pod: Path, container: str) -> int:
    """Size of the stored logs of a container; `pod` is the pod's folder."""
    return sum(log.stat().st_size for log in (pod / "containers" / container).glob("*/log"))


def remove_logs(pod: Path) -> None:
    """Delete the logs of every container in a pod's folder."""
    for log in (pod / "containers").glob("*/*/log"):
        log.unlink()


async def start(
    shims: Shims,
    container: Path,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    limit: int | None,
    view: View | None,
) -> Attempt:
    """Start the next attempt of a container. When this returns, it is running or has already ended."""
    attempt = prepare(container)
    specification = {
        "argv": list(argv),
        "env": dict(env),
        "cwd": str(cwd),
        "memory_limit_bytes": limit,
        "view": view.to_json() if view else None,
    }
    with (attempt.folder / "shim-errors").open("wb") as errors:
        process = subprocess.Popen(  # noqa: ASYNC220 - it must outlive this loop, and starts in a millisecond
            [sys.executable, "-I", "-S", str(SHIM), str(attempt.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            start_new_session=True,
        )
    # Written before the shim can do it itself, so that a server killed right now still finds it.
    shim.write(attempt.folder / "shim.json", {"pid": process.pid, "started": shim.start_ticks(process.pid)})
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(specification).encode())
        process.stdin.close()
    shims.add(process)
    deadline = asyncio.get_running_loop().time() + START_WAIT_S
    while not attempt.known() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - a file appears
        await asyncio.sleep(0.005)
    return attempt


def prepare(container: Path) -> Attempt:
    """Create the folder of the next attempt, and remove folders that no request can reach any more."""
    numbers = _numbers(container)
    number = numbers[-1] + 1 if numbers else 0
    for old in numbers[: -(KEPT_ATTEMPTS - 1)]:
        shutil.rmtree(container / str(old), ignore_errors=True)
    folder = container / str(number)
    folder.mkdir(parents=True, mode=0o700)
    attempt = Attempt(folder, number)
    attempt.termination_log.touch()
    attempt.log.touch()
    return attempt


async def _exit_of(pid: int | None) -> None:
    """Return when the process `pid` has ended, or after a short while."""
    if pid is None or not hasattr(os, "pidfd_open"):
        await asyncio.sleep(POLL_S)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        await asyncio.sleep(POLL_S)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _numbers(container: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in container.iterdir() if entry.name.isdigit())
    except FileNotFoundError:
        return []


def _read(file: Path) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return record


def end_containers(folder: Path, *, grace_s: float) -> int:
    """End every container below `folder`, with SIGKILL after `grace_s`, and return their number. Blocks."""
    newest = [latest(container) for container in folder.glob("**/containers/*")]
    running = [attempt for attempt in newest if attempt is not None and attempt.ended() is None]
    for attempt in running:
        attempt.terminate()
    deadline = time.monotonic() + grace_s
    count = len(running)
    while running:
        if time.monotonic() >= deadline:
            for attempt in running:
                attempt.kill()
        time.sleep(ENDING_POLL_S)
        running = [attempt for attempt in running if attempt.ended() is None]
    return count
