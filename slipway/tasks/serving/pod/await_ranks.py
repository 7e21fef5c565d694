"""await-ranks: the preStop hook of a worker. It returns once no rank of the leader runs in the worker's container.

The leader's answers need every rank, so a worker that is deleted stays while its ranks run. It stays no longer: a group
that is created again starts when all pods of the old one are gone.
"""

import argparse
from collections.abc import Callable, Mapping

from slipway.tasks.adapters.clock import Clock, SystemClock
from slipway.tasks.adapters.process import is_running

LAUNCHER = "orted"
"""Open MPI's launcher on a node other than mpirun's: the parent of the node's ranks, which ends after them."""
POLL_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that k8s_manifests/serving/leaderworkerset.yaml.j2 passes."""
    parser.add_argument("--at-most-s", type=float, required=True, help="how long the leader may take to end")


def run(parsed: argparse.Namespace, _: Mapping[str, str]) -> str:
    """Wait until no rank runs in this container; return a summary for the log."""
    return await_ranks(is_running, SystemClock(), at_most_s=parsed.at_most_s)


def await_ranks(runs: Callable[[str], bool], clock: Clock, *, at_most_s: float) -> str:
    """Wait until no launcher runs, and return a summary for the log.

    Args:
        runs: whether a program of this name runs in the container.
        clock: time.
        at_most_s: seconds after which the worker ends although ranks are running.
    """
    began = clock.monotonic()
    while running := runs(LAUNCHER):
        if clock.monotonic() - began >= at_most_s:
            break
        clock.sleep(POLL_S)
    state = "ranks were still running" if running else "no rank is running"
    return f"{state} after {clock.monotonic() - began:.1f} s"
