"""Runs one container: starts it, writes its log in the CRI format, and records how it ended.

Started as `python -I -S shim.py FOLDER` with a JSON specification on standard input (argv, env, cwd, memory_limit_bytes
or null, view or null), so it imports the standard library alone and no secret of the container reaches a file. It
outlives the server. In FOLDER it writes `shim.json` (who the shim is), `started.json`, `log` and at last `exit.json`.

SIGTERM is passed on to the container's process group; SIGUSR1 kills every process that descends from the container.
When the first process ends, so do the others, as in a container.
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

READ_BYTES = 65536
LINE_BYTES = 16384  # containerd splits longer lines
LOOK_S = 1.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
DRAIN_S = 1.0
START_ERROR = 128  # containerd's exit code of a command that cannot be started
PR_SET_CHILD_SUBREAPER = 36
PASSED_ON = (signal.SIGTERM, signal.SIGUSR1)
"""Signals that are meant for the container."""


def main(folder: Path) -> None:
    """Run the container of `folder` to its end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until they have handlers
    specification = json.load(sys.stdin)
    _become_subreaper()
    write(folder / "shim.json", {"pid": os.getpid(), "started": start_ticks(os.getpid())})
    log = (folder / "log").open("ab", buffering=0)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    reader, failure = os.pipe()
    try:
        process = subprocess.Popen(
            specification["argv"],
            env=specification["env"],
            cwd=specification["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=lambda: _become_container(specification["view"], failure),  # noqa: PLW1509 - one thread
        )
    except OSError as error:
        message = f"exec: {specification['argv'][0]!r}: {error.strerror} (working directory {specification['cwd']})"
        _write_start_error(folder, message)
        return
    except subprocess.SubprocessError:
        _write_start_error(folder, f"the file system could not be set up: {os.read(reader, READ_BYTES).decode()}")
        return
    Container(folder, process, log, specification["memory_limit_bytes"]).run()


class Container:
    """A started container under this shim."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], log: IO[bytes], limit_bytes: int | None) -> None:
        self._folder, self._process, self._log, self._limit_bytes = folder, process, log, limit_bytes
        self._out_of_memory = False
        self._began = stamp()
        self._rest: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    def run(self) -> None:
        """Copy output until the first process ends; then end the others and write the record."""
        signal.signal(signal.SIGTERM, lambda *_: self._signal_group(signal.SIGTERM))
        signal.signal(signal.SIGUSR1, lambda *_: self._kill_all())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        started = {"pid": self._process.pid, "started": start_ticks(self._process.pid), "startedAt": self._began}
        write(self._folder / "started.json", started)
        pipes = selectors.DefaultSelector()
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            pipes.register(pipe, selectors.EVENT_READ, name)
        # A running program may close its pipes, and children may keep them open, so pipes do not show its end.
        ended = os.pidfd_open(self._process.pid)
        pipes.register(ended, selectors.EVENT_READ)
        next_look = time.monotonic() + LOOK_S
        while self._process.poll() is None:
            self._copy(pipes, max(0.0, next_look - time.monotonic()))
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + LOOK_S
                self._look_at_memory()
        pipes.unregister(ended)
        os.close(ended)
        self._finish(pipes)

    def _finish(self, pipes: selectors.BaseSelector) -> None:
        self._kill_all()
        deadline = time.monotonic() + DRAIN_S
        while pipes.get_map() and time.monotonic() < deadline:
            self._copy(pipes, 0.05)
        for stream, rest in self._rest.items():
            if rest:
                self._write_line(stream, b"P", rest)
        self._reap()
        code = self._process.returncode
        code = 128 - code if code < 0 else code
        reason = "OOMKilled" if self._out_of_memory else "Completed" if code == 0 else "Error"
        if self._out_of_memory:
            code = 128 + signal.SIGKILL
        end = {"exitCode": code, "reason": reason, "startedAt": self._began, "finishedAt": stamp()}
        write(self._folder / "exit.json", end)

    def _copy(self, pipes: selectors.BaseSelector, wait_s: float) -> None:
        for key, _ in pipes.select(wait_s):
            if key.data is None:  # the process has ended
                continue
            try:
                data = os.read(key.fd, READ_BYTES)
            except BlockingIOError:
                continue
            if not data:
                pipes.unregister(key.fileobj)
            else:
                self._write(key.data, data)

    def _write(self, stream: str, data: bytes) -> None:
        *lines, rest = (self._rest[stream] + data).split(b"\n")
        for line in lines:
            while len(line) > LINE_BYTES:
                self._write_line(stream, b"P", line[:LINE_BYTES])
                line = line[LINE_BYTES:]  # noqa: PLW2901 - the rest of it
            self._write_line(stream, b"F", line)
        while len(rest) > LINE_BYTES:
            self._write_line(stream, b"P", rest[:LINE_BYTES])
            rest = rest[LINE_BYTES:]
        self._rest[stream] = rest

    def _write_line(self, stream: str, tag: bytes, text: bytes) -> None:
        self._log.write(b"%s %s %s %s\n" % (stamp().encode(), stream.encode(), tag, text))

    def _look_at_memory(self) -> None:
        if self._limit_bytes is not None and not self._out_of_memory:
            used = sum(resident_bytes(pid) for pid in descendants(os.getpid()))
            if used > self._limit_bytes:
                self._out_of_memory = True
                self._kill_all()

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _kill_all(self) -> None:
        self._signal_group(signal.SIGKILL)
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    self._kill_all()
                    time.sleep(0.01)
                continue
            return


def _become_container(view: str | None, failure: int) -> None:
    """Runs between fork and exec. Popen reports only that this failed, so the reason goes to `failure`."""
    default_signals()
    if view is None:
        return
    try:
        confinement = _confinement()
        confinement.enter(confinement.View.from_json(view))
    except OSError as error:
        os.write(failure, str(error).encode())
        raise


def _confinement() -> Any:
    """Load the module beside this file, whose folder must stay off the path: its modules would hide standard ones."""
    specification = importlib.util.spec_from_file_location("confinement", Path(__file__).with_name("confinement.py"))
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _write_start_error(folder: Path, message: str) -> None:
    end = {"exitCode": START_ERROR, "reason": "StartError", "message": message}
    write(folder / "exit.json", end | {"startedAt": stamp(), "finishedAt": stamp()})


def default_signals() -> None:
    """Restore signals that Python or a background caller ignored: a shell cannot trap an inherited ignored signal."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def descendants(root: int) -> list[int]:
    """Every living process below `root` (proc(5)); none where there is no /proc.

    Read from the processes themselves, because every container asks each second: looking through all of /proc takes
    each of them a hundredth of a CPU where 800 processes run.
    """
    pids, queue = [], [root]
    while queue:
        below = [pid for pid in _children(queue.pop()) if (fields := _stat(pid)) and fields[0] != b"Z"]
        pids += below
        queue += below
    return pids


def _children(pid: int) -> list[int]:
    """The processes that any thread of a process started and did not wait for."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib takes five times as long
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None when it is gone or a zombie. A pid alone is reused."""
    fields = _stat(pid)
    return None if not fields or fields[0] == b"Z" else int(fields[19])


def resident_bytes(pid: int) -> int:
    """Memory that is only freed when the process ends: anonymous pages, without pages of mapped files."""
    fields = _read(f"/proc/{pid}/statm").split()
    return (int(fields[1]) - int(fields[2])) * PAGE_BYTES if fields else 0


def _stat(pid: int) -> list[bytes]:
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(file: str) -> bytes:
    """A file of /proc; nothing of a process that is gone. With pathlib it takes three times as long."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    found = b""
    try:
        while data := os.read(descriptor, READ_BYTES):  # the kernel gives at most a page at a time
            found += data
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return found


def stamp() -> str:
    """Now, as CRI logs write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def write(file: Path, record: dict[str, Any]) -> None:
    """Write a file atomically."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(record))
    partial.replace(file)


def _become_subreaper() -> None:
    # Orphaned processes become children of the shim instead of init.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
