"""Runs a vendor's command line tool: the log shows that it is running; a failure quotes its last line."""

import logging
from collections.abc import Sequence
from pathlib import Path

from slipway.tasks.adapters.process import Process
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.heartbeat import phase

log = logging.getLogger(__name__)

LOGGED_LINES = 60
QUOTED_CHARS = 200


def run_tool(command: Sequence[str], log_file: Path, what: str) -> None:
    """Run `command` and return once it has succeeded.

    Args:
        command: program, looked up on PATH, and its arguments.
        log_file: takes its stdout and stderr.
        what: for the log and for messages, e.g. "quantizing to fp8".

    Raises:
        InputError: it failed, or is not in this image.
    """
    log.info("%s: %s", what, " ".join(command))
    with phase(what), Process(command, log_file) as tool:
        code = tool.wait()
        if code == 0:
            return
        lines = tool.tail(LOGGED_LINES)
    log.error("last lines of %s:\n%s", command[0], "\n".join(lines))
    ended = f"was killed by signal {-code}, perhaps for lack of memory" if code < 0 else f"ended with exit code {code}"
    raise InputError(
        f"{what}: {Path(command[0]).name} {ended}",
        found=f"{lines[-1][:QUOTED_CHARS]!r} at the end of its log" if lines else "an empty log",
        remedy=f"Read the step's log, which holds its last {LOGGED_LINES} lines.",
    )
