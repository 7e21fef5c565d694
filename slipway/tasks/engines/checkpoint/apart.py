"""Runs one of our modules over a stranger's files in a process of its own, with limits and without secrets.

CPU seconds are limited and not seconds: a busy machine makes a process late, and only its own work uses it up.
"""

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from slipway.tasks.adapters.worker import harmless_environment
from slipway.tasks.contracts.errors import InputError, PipelineError
from slipway.tasks.engines.checkpoint.foreign import QUOTED_CHARS, first_line

LAST_CHARS = 2000


def run_apart(module: str, arguments: Sequence[str], *, what: str, remedy: str) -> str:
    """Run `python -m module`, whose main program is within `limited`; return what it prints.

    Args:
        module: its full name.
        arguments: those of its command line.
        what: what could not be done if the files are at fault.
        remedy: what a person should do then.

    Raises:
        InputError: it raised an error, or reached a limit.
        PipelineError: it was killed, or did not begin.
    """
    command, environment = [sys.executable, "-m", module, *arguments], harmless_environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if done.returncode == -signal.SIGXCPU:
        raise InputError(what, found="no end within its CPU seconds", remedy=remedy)
    lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
    if done.returncode == InputError.exit_code:
        raise InputError(what, found=lines[-1][:QUOTED_CHARS], remedy=remedy)
    if done.returncode:
        found = f"exit code {done.returncode}; {done.stderr[-LAST_CHARS:].strip()}"
        raise PipelineError(f"the process of {module} broke", found=found)
    return done.stdout


@contextmanager
def limited(*, cpu_s: int, memory_bytes: int) -> Iterator[None]:
    """Limit this process, and end it with whatever the block raises as its last words.

    Args:
        cpu_s: CPU seconds of the whole process, imports included.
        memory_bytes: its address space.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))  # SIGXCPU, a second later SIGKILL
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of Rust code is one: see foreign.refusing
        sys.stderr.write(f"{first_line(error)}\n")
        sys.exit(InputError.exit_code)
