"""What the schedule runs: environments that are made, and parts of the tests in them."""

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.runner import REPORTS
from tests.runner.parts import ENVIRONMENTS as DECLARED
from tests.runner.parts import Part
from tests.runner.temporary import Folders, remove
from tests.support.paths import ENVIRONMENTS, REPOSITORY

INSTALLER = "uv"
TESTS_FAILED, NO_TESTS = 1, 5
"""pytest's exit codes; the second is for a selection that matched nothing."""
LAID_OVER = (
    "import gc, sys; gc.set_threshold(700, 10, 100); "
    "sys.path.append(sys.argv.pop(1)); sys.path.insert(0, sys.argv.pop(1)); "
    "import pytest; from slipway.tasks.frames import with_room; "
    "sys.exit(with_room(lambda: pytest.main(sys.argv[1:])))"
)
"""pytest comes from the dev environment, laid behind the environment's own packages: what is tested is exactly what the
image holds. Python looks for garbage among all that stays a tenth as often: it took a tenth of the unit tests' CPU time."""


@dataclass(eq=False)
class Job(ABC):
    """A process that may begin when the jobs named by `needs` have ended well."""

    name: str
    seconds: float
    cpus: float
    memory_mb: int
    needs: tuple[str, ...]
    shown: bool = False
    code: int | None = None
    cpu_s: float = 0.0
    ready_at: float = 0.0
    began_at: float = 0.0
    ended_at: float = 0.0
    locks: tuple[int, ...] = ()
    """Descriptors that its reaper keeps open until it ends."""
    pid: int = field(default=0, init=False)
    is_stopped: bool = field(default=False, init=False)

    @property
    def log(self) -> Path:
        """What it printed."""
        return REPORTS / f"{re.sub(r'[^a-z0-9]+', '-', self.name)}.log"

    @property
    def is_done(self) -> bool:
        """Whether it ended well."""
        return self.code == 0

    def run(self) -> None:
        """Run it to its end; its output goes to its log, or where ours goes if it is shown."""
        self.began_at = time.monotonic()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("wb") as log:
                self._run(None if self.shown else log)
        finally:
            self.ended_at = time.monotonic()

    def stop(self) -> None:
        """Have its reaper interrupt it, as soon as there is one; the terminal interrupts what is shown."""
        self.is_stopped = True
        if self.pid and self.code is None and not self.shown:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, signal.SIGTERM)

    @abstractmethod
    def command(self) -> list[str]:
        """The command line."""

    def variables(self) -> dict[str, str]:
        """Further environment variables."""
        return {}

    def _run(self, output: IO[bytes] | None) -> None:
        # toolkits are compiled once: importing them otherwise takes 16 s, not 6
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as slipway/tasks/__main__.py sets it for a step
        environment.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads spin when a process begins
        environment |= self.variables()
        reaper = [sys.executable, "-m", "tests.runner.reaper", str(os.getpid())]
        process = subprocess.Popen(
            [*reaper, *self.command()],
            cwd=REPOSITORY,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=self.locks,
            # the kernel divides CPU time between sessions, others' among them; a debugger needs the terminal
            start_new_session=not self.shown,
        )
        self.pid = process.pid
        if self.is_stopped:
            self.stop()
        _, status, usage = os.wait4(process.pid, 0)
        self.code = process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime


class Making(Job):
    """An environment that is made, or found as its lock wants it."""

    def __init__(self, name: str) -> None:
        if name == INSTALLER:
            super().__init__(name, 5, 1.0, 100, ())
        else:
            declared = DECLARED[name]
            super().__init__(f"environment {name}", declared.seconds, declared.cpus, 300, (INSTALLER,))
        self.environment = name

    def command(self) -> list[str]:
        """Without a name only the installer itself is made."""
        names = [] if self.environment == INSTALLER else [self.environment]
        return [sys.executable, "-m", "local.environments", *names]


@dataclass(eq=False)
class Testing(Job):
    """A part of the tests, with arguments for pytest, which writes what does not last into `folder`."""

    part: Part | None = None
    arguments: list[str] = field(default_factory=list)
    folder: Path = Path()

    @classmethod
    def of(cls, part: Part, arguments: list[str], folders: Folders) -> "Testing":
        """The job of a part."""
        needs = tuple(f"environment {name}" for name in dict.fromkeys(part.environments))
        cost, folder = (part.seconds, part.cpus, part.memory_mb), folders.disk if part.pods else folders.memory
        job = cls(part.name, *cost, needs, part=part, arguments=arguments, folder=folder)
        job.locks = folders.locks
        return job

    def again(self) -> "Testing":
        """The job of its failed tests alone."""
        failed = ["--last-failed", "--last-failed-no-failures", "none"]
        return dataclasses.replace(
            self, name=f"{self.name}, again", needs=(), code=None, arguments=[*self.arguments, *failed]
        )

    @property
    def report(self) -> Path:
        """JUnit's report."""
        return self.log.with_suffix(".xml")

    @property
    def _own_folder(self) -> Path:
        return self.folder / self.log.stem

    def command(self) -> list[str]:
        """pytest in the part's environment, with the plugins of tests/support."""
        overlay = next((ENVIRONMENTS / "dev" / "lib").glob("python3.*")) / "site-packages"
        python = ENVIRONMENTS / self.part.python / "bin" / "python"
        command = [str(python), "-c", LAID_OVER, str(overlay), str(REPOSITORY)]
        command += ["-p", "tests.support.timing", "-p", "tests.support.service_logs", f"--junitxml={self.report}", "-q"]
        command += [f"--basetemp={self._own_folder}", "-o", f"cache_dir={REPORTS / 'cache' / self.part.name}"]
        return [*command, *self.arguments]

    def variables(self) -> dict[str, str]:
        """The folder, for what tests and services write beside pytest's own."""
        return {"TMPDIR": str(self.folder)}

    def _run(self, output: IO[bytes] | None) -> None:
        try:
            super()._run(output)
        finally:
            remove(self._own_folder)  # beside what still runs, and before its memory is needed
