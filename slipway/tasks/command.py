"""`python -m slipway.tasks <step>` runs one step of a release in one process, by hand or in a pod.

    python -m slipway.tasks plan --request s3://.../plan.json                  (in a pod)
    python -m slipway.tasks plan --spec FILE_OR_JSON --run ID [--revision R] [--force] [--look FILE]
    python -m slipway.tasks STEP --release s3://.../release.json [--run ID]
    python -m slipway.tasks revert --request s3://.../revert.json              (in a pod)
    python -m slipway.tasks revert --name MODEL --run ID [--reason TEXT] [--to RELEASE|live]
    python -m slipway.tasks fetch-adapters|sign-adapters|load-adapters --request s3://.../STEP.json       (in a pod)
    python -m slipway.tasks fetch-adapters|sign-adapters|load-adapters --spec FILE_OR_JSON --run ID [--to previous]
    python -m slipway.tasks drill --request s3://.../drill.json                (in a pod)
    python -m slipway.tasks drill --name MODEL --run ID [--request-rate R] [--seconds S]
    python -m slipway.tasks retention --request s3://.../retention.json        (in a pod)
    python -m slipway.tasks retention --run ID [--dry-run]
    python -m slipway.tasks fetch-repository --release s3://.../release.json --to FOLDER
    python -m slipway.tasks follow-adapters --release s3://.../release.json --adapters FOLDER   (beside a server)
    python -m slipway.tasks lead --group KEY --nodes N ...   (in a leader's pod, see serving/pod/lead.py)
    python -m slipway.tasks drain --front SOCKET ...   (preStop of a server, see serving/pod/drain.py)
    python -m slipway.tasks export-metrics [--port N]   (a pod of its own, see k8s_manifests/monitoring)
    python -m slipway.tasks all-reduce --leader ADDRESS ...   (a rank, see serving/pod/all_reduce.py)
    python -m slipway.tasks await-ranks --at-most-s S   (preStop of a worker, see serving/pod/await_ranks.py)
    python -m slipway.tasks openai --socket SOCKET ...   (beside a server, see serving/openai_api/process.py)

Environment: SLIPWAY_SITE (site file, unless --site is given), SLIPWAY_SCRATCH (folder for temporary files),
SLIPWAY_TERMINATION_LOG (file that gets the last line), SLIPWAY_SIGNING_KEY (private key, in PEM), HF_TOKEN, the
variables that boto3 and the Kubernetes client read, and what Airflow tells a step about its run
(slipway/tasks/contracts/stored/lease.py).

Exit codes: 0 done, 65 wrong input, 75 unavailable (a retry may help), 70 other; 143 and 130 after SIGTERM and SIGINT.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from slipway.tasks import pod_processes
from slipway.tasks.adapters.telemetry import log_lines
from slipway.tasks.contracts.errors import PipelineError, unexpected
from slipway.tasks.serving.pod import all_reduce

TERMINATION_BYTES = 4096  # Kubernetes keeps no more of a termination message
SIGNALLED = 128
AGAIN_S = 0.05  # by then the place where Python ignores exceptions is left
QUIET = ("httpx", "httpcore", "urllib3", "botocore", "boto3", "s3transfer", "great_expectations")

log = logging.getLogger("slipway.tasks")


class Signalled(SystemExit):
    """A signal told the process to end.

    It is not an Exception, so that no handler on the way out takes it for one. It is a SystemExit because asyncio lets
    nothing else but KeyboardInterrupt out of a task or a callback.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.code = self.exit_code = SIGNALLED + number


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Run one step and return its exit code."""
    log_lines.configure("text", sys.stdout, {})
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    _handle_with(_end)
    sys.unraisablehook = partial(_tell_again, sys.unraisablehook)
    try:
        given = sys.argv[1:] if arguments is None else arguments
        code, message = 0, program(given)(given, environment)
    except PipelineError as error:
        code, message = error.exit_code, str(error)
    except Signalled as error:
        code, message = error.exit_code, f"ended by {signal.Signals(error.number).name}"
    except Exception as error:
        log.exception("unexpected error")
        code, message = PipelineError.exit_code, unexpected(error)
    (log.error if code else log.info)(message)
    # the ranks of a container share its message, and rank 0 has the result
    if (path := environment.get("SLIPWAY_TERMINATION_LOG")) and environment.get(all_reduce.RANK, "0") == "0":
        line = " ".join(message.split()).encode()[: TERMINATION_BYTES - 1].decode(errors="ignore")
        Path(path).write_text(f"{line}\n", encoding="utf-8")
    return code


def program(arguments: Sequence[str]) -> Callable[[Sequence[str], Mapping[str, str]], str]:
    """Import what these arguments need; return what runs them, which returns one line about what it did."""
    if arguments and (module := pod_processes.PROCESSES.get(arguments[0])):
        import_module(module)
        return pod_processes.run
    from slipway.tasks import programs

    return partial(programs.run, description=__doc__)


def _end(number: int, _: Any) -> None:
    """Unwind from wherever the process is; a second signal does not interrupt the clean-up."""
    _handle_with(signal.SIG_IGN)
    raise Signalled(number)


def _handle_with(handler: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _tell_again(others: Callable[[Any], None], ignored: Any) -> None:
    """Send the signal once more, a moment later, if Python ignored what its handler raised.

    Python ignores exceptions in finalizers, in callbacks of weak references and in what runs around a fork, among
    others. `others` is called for every other ignored exception. Children that start meanwhile inherit the handler.
    """
    if not isinstance(ignored.exc_value, Signalled):
        others(ignored)
        return
    _handle_with(_end)
    arguments = (threading.main_thread().ident, ignored.exc_value.number)
    again = threading.Timer(AGAIN_S, signal.pthread_kill, arguments)
    again.daemon = True
    again.start()
