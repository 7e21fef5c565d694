"""Background processes of the stack: started in a session of their own, ended by pid and start time.

A pid alone is not enough: the kernel gives it to another process once ours has ended.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOP_TIMEOUT_S = 15.0
POLL_S = 0.05


@dataclass(frozen=True)
class Background:
    """A named process: `<folder>/<name>.json` says who it is, `<folder>/<name>.log` what it printed."""

    folder: Path
    name: str

    @property
    def log(self) -> Path:
        """Standard output and error."""
        return self.folder / f"{self.name}.log"

    @property
    def _record(self) -> Path:
        return self.folder / f"{self.name}.json"

    def start(self, command: Sequence[str], environment: Mapping[str, str], working_directory: Path) -> int:
        """Start it unless it runs; its pid. The process outlives this one."""
        running = self.pid()
        if running is not None:
            return running
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                list(command),
                env=dict(environment),
                cwd=working_directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        record = {"pid": process.pid, "started": _start_ticks(process.pid), "boot": _boot()}
        self._record.write_text(json.dumps(record))
        return process.pid

    def pid(self) -> int | None:
        """Its pid while it runs."""
        record = self._recorded()
        alive = record and record["started"] is not None and _start_ticks(record["pid"]) == record["started"]
        return int(record["pid"]) if record and alive else None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End its process group, also one whose first process is gone: SIGTERM, and SIGKILL after `timeout_s`."""
        group = self._group()
        if group is not None:
            _signal_group(group, signal.SIGTERM)
            deadline = time.monotonic() + timeout_s
            while _group_lives(group) and time.monotonic() < deadline:
                _reap(group)
                time.sleep(POLL_S)
            _signal_group(group, signal.SIGKILL)
            _reap(group)
        self._record.unlink(missing_ok=True)

    def _group(self) -> int | None:
        """Its process group while anything of it lives. The kernel gives no pid anew while a group bears its number."""
        record = self._recorded()
        if record is None or _start_ticks(record["pid"]) not in (None, record["started"]):
            return None
        return int(record["pid"]) if _group_lives(record["pid"]) else None

    def _recorded(self) -> dict[str, Any] | None:
        try:
            record: dict[str, Any] = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return None
        return record if record["boot"] == _boot() else None

    def tail(self, lines: int = 20) -> str:
        """The last lines of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


def free_port(preferred: int | None = None) -> int:
    """A loopback TCP port that nobody listens on: `preferred` when it is free."""
    for port in (preferred, 0):
        if port is None:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise OSError("no free loopback port")


def _start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (proc(5), stat field 22); None: gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _group_lives(group: int) -> bool:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                return True
    return False


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
