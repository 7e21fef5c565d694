"""Keeps the stack's services running: supervisord, its configuration, and the requests to it.

supervisord restarts a service that ended, stops each one with its process group within its own time-out, and listens
on a Unix socket that only its owner can open (docs/decisions/0016). This module imports no third-party package, so
looking up addresses of the stack is fast.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import time
import xmlrpc.client
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.private_files import PRIVATE_UMASK, make_private, open_private, write_private
from local.processes import SERVICE, STACK, end, having
from local.supervisor_socket import SupervisorGoneError, call
from slipway.tasks.contracts.errors import PipelineError

START_TIMEOUT_S = 120.0
STOP_MARGIN_S = 60.0
LEFT_OVER_TIMEOUT_S = 2.0
POLL_S = 0.1
NOT_RUNNING, ALREADY_STARTED, ENDED_AT_ONCE, BAD_NAME = 70, 60, 50, 10
"""Faults of supervisord (https://github.com/Supervisor/supervisor/blob/4.3.0/supervisor/xmlrpc.py)."""
SETTINGS = """\
; {python} {repository}
[supervisord]
nodaemon=true
silent=true
nocleanup=true
minfds=1
minprocs=1
logfile=%(here)s/supervisord.log
logfile_maxbytes=1MB
logfile_backups=1
pidfile=%(here)s/supervisord.pid

; relative to the folder in which it is started: the whole path can be too long for a socket
[unix_http_server]
file=/proc/self/cwd/socket
chmod=0600

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
"""
SERVICE_SETTINGS = """
[program:{name}]
command="%(ENV_SLIPWAY_PYTHON)s" -S -m local.launch "%(here)s/{name}.json"
directory=%(ENV_SLIPWAY_REPOSITORY)s
autostart=false
autorestart=true
startsecs=2
startretries=3
stopwaitsecs={stop_timeout_s}
stopasgroup=true
killasgroup=true
redirect_stderr=true
stdout_logfile=NONE
"""


@dataclass(frozen=True)
class Service:
    """A named program. It is restarted when any of its fields changes."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: Path
    depends_on: str = ""
    """Text of the files and addresses that the program reads once, when it starts."""


@dataclass(frozen=True)
class State:
    """The state of a service."""

    name: str
    word: str
    pid: int = 0
    seconds: int = 0
    """Seconds since the service started or ended."""

    @property
    def runs(self) -> bool:
        """Whether the service is starting or running."""
        return self.word in ("STARTING", "RUNNING")

    @property
    def gave_up(self) -> bool:
        """Whether supervisord gave up: the service ended right after each of several starts."""
        return self.word == "FATAL"

    def __str__(self) -> str:
        if self.runs:
            return f"up for {self.seconds} s, pid {self.pid}"
        return {
            "STOPPED": "down",
            "FATAL": "failed: it ends whenever it is started",
            "BACKOFF": "restarting",
        }.get(self.word, self.word.lower())


class Supervisor:
    """The services of one stack, started and stopped by name."""

    def __init__(self, stack: Path, python: Path, repository: Path, stop_timeouts_s: Mapping[str, int]) -> None:
        """`stop_timeouts_s` names every service and how long it may take to end after SIGTERM."""
        self._stack, self._python, self._repository = stack, python, repository
        self._stop_timeouts_s = dict(stop_timeouts_s)
        self._folder, self._logs = stack / "supervisor", stack / "logs"

    def start(self, services: Iterable[Service]) -> None:
        """Start services that are down, and restart those whose description changed. They outlive this process.

        Raises:
            PipelineError: supervisord does not start.
        """
        self._start_supervisord()
        for service in services:
            file, text = self._folder / f"{service.name}.json", self._description(service)
            if self.states()[service.name].runs and file.exists() and file.read_text() == text:
                continue
            self.stop([service.name])
            write_private(file, text)
            with _but(ALREADY_STARTED, ENDED_AT_ONCE):
                self._call("startProcess", service.name, False)

    def request_stop(self, names: Collection[str]) -> None:
        """Send SIGTERM to services without waiting for them. Supervisord of an older version may not have them all."""
        for name in names:
            with _but(NOT_RUNNING, BAD_NAME):
                self._call("stopProcess", name, False)

    def stop(self, names: Collection[str]) -> None:
        """Stop services in parallel, each within its own time-out, and wait for them.

        Raises:
            PipelineError: a service does not end.
        """
        self.request_stop(names)
        deadline = time.monotonic() + STOP_MARGIN_S + max(self._stop_timeouts_s[name] for name in names)
        while left := [name for name in names if self.states()[name].word in ("RUNNING", "STARTING", "STOPPING")]:
            if time.monotonic() > deadline:
                raise PipelineError(
                    f"{', '.join(left)} did not end after SIGKILL", remedy=f"Read {self._folder}/supervisord.log."
                )
            time.sleep(POLL_S)

    def end(self) -> int:
        """Stop supervisord and every remaining process of the stack.

        Returns:
            How many processes were left after supervisord had stopped its services.
        """
        with contextlib.suppress(SupervisorGoneError):
            with contextlib.suppress(PipelineError):  # what is left is killed
                self.stop(list(self._stop_timeouts_s))
            self._call("shutdown")
            deadline = time.monotonic() + STOP_MARGIN_S
            with contextlib.suppress(SupervisorGoneError):
                while time.monotonic() < deadline:
                    self._call("getState")
                    time.sleep(POLL_S)
        return end(self._processes, LEFT_OVER_TIMEOUT_S)

    def end_left_over(self) -> int:
        """Stop the services of a supervisord that was killed, and return their number; 0 while supervisord runs."""
        return 0 if self.answers() else end(self._processes, LEFT_OVER_TIMEOUT_S)

    def answers(self) -> bool:
        """Whether supervisord runs."""
        try:
            self._call("getState")
        except SupervisorGoneError:
            return False
        return True

    def states(self) -> dict[str, State]:
        """The state of each service. Without supervisord, a leftover service does not count as running."""
        states = {name: State(name, "STOPPED") for name in self._stop_timeouts_s}
        with contextlib.suppress(SupervisorGoneError):
            for item in self._call("getAllProcessInfo"):
                since = item["start"] if item["pid"] else item["stop"]
                seconds = max(0, item["now"] - since)
                states[item["name"]] = State(item["name"], item["statename"], item["pid"], seconds)
        return states

    def processes_of(self, name: str) -> set[int]:
        """Pids of a service and of everything that it started."""
        return having(**{STACK: str(self._stack), SERVICE: name})

    def left_over(self) -> int:
        """How many processes a killed supervisord has left behind."""
        return 0 if self.answers() else len(self._processes())

    def log(self, name: str) -> Path:
        """Return the log file with a service's standard output and error."""
        return self._logs / f"{name}.log"

    def tail(self, name: str, lines: int = 20) -> str:
        """The last lines of a service's log."""
        try:
            return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def _start_supervisord(self) -> None:
        settings = self._folder / "supervisord.conf"
        expected = SETTINGS.format(python=self._python, repository=self._repository) + "".join(
            SERVICE_SETTINGS.format(name=name, stop_timeout_s=seconds)
            for name, seconds in self._stop_timeouts_s.items()
        )
        if self.answers():
            if settings.read_text() == expected:
                return
            self.end()
        for folder in (self._folder, self._logs):
            make_private(folder)
        write_private(settings, expected)
        errors = self._folder / "errors.log"
        with open_private(errors) as stream:
            process = subprocess.Popen(
                [str(self._python), "-I", "-m", "supervisor.supervisord", "-c", settings.name],
                env=self._environment(),
                cwd=self._folder,
                umask=PRIVATE_UMASK,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise PipelineError(f"supervisord did not start in {self._folder}", found=errors.read_text()[-2000:])
            time.sleep(POLL_S)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "SLIPWAY_PYTHON": str(self._python),
            "SLIPWAY_REPOSITORY": str(self._repository),
            STACK: str(self._stack),
        }

    def _description(self, service: Service) -> str:
        # without SPT_NOENV, setproctitle (used by Airflow) overwrites the environment that identifies processes
        known_by = {STACK: str(self._stack), SERVICE: service.name, "SPT_NOENV": "1"}
        description = {
            "command": list(service.command),
            "environment": {**service.environment, **known_by},
            "working_directory": str(service.working_directory),
            "log": str(self.log(service.name)),
            "depends_on": hashlib.sha256(service.depends_on.encode()).hexdigest(),
        }
        return json.dumps(description, indent=1)

    def _processes(self) -> set[int]:
        return having(**{STACK: str(self._stack)})

    def _call(self, method: str, *arguments: str | bool) -> Any:
        return call(self._folder, method, *arguments)


@contextlib.contextmanager
def _but(*codes: int) -> Iterator[None]:
    """Ignore faults which say that the request was already fulfilled, or what the service's state says as well."""
    try:
        yield
    except xmlrpc.client.Fault as fault:
        if fault.faultCode not in codes:
            raise PipelineError("supervisord refused a request", found=fault.faultString) from fault
