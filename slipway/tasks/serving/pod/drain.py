"""drain: the preStop hook of a server. It empties the pod's front and ends it; then Kubernetes signals the server.

The order keeps requests complete. Clients are told to close their connections while both ends still work; then the
front stops listening; then it waits for the requests in flight; then it closes idle connections, and Triton is left
without a client.
"""

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from slipway.tasks.adapters.clock import Clock, SystemClock
from slipway.tasks.adapters.kube.front import EnvoyFront

log = logging.getLogger(__name__)

POLL_S = 0.2


class Front(Protocol):
    """The proxy that takes a pod's connections."""

    def close_connections(self) -> None:
        """Answer every further request with `Connection: close` or GOAWAY. New connections are still accepted."""

    def stop_listening(self) -> None:
        """Refuse new connections; requests in flight continue."""

    def requests_in_flight(self) -> int:
        """The number of requests without a complete answer."""

    def quit(self) -> None:
        """Close all connections and end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that slipway/tasks/serving/rendered/front.py writes."""
    parser.add_argument("--front", type=Path, required=True, help="Unix socket of the front's admin interface")
    parser.add_argument("--leave-s", type=float, required=True, help="how long connections are told to close")
    parser.add_argument(
        "--requests-s", type=float, required=True, help="how long requests in flight may take after that"
    )


def run(parsed: argparse.Namespace, _: Mapping[str, str]) -> str:
    """Empty the pod's front and end it; return a summary for the log."""
    return drain(EnvoyFront(parsed.front), SystemClock(), leave_s=parsed.leave_s, requests_s=parsed.requests_s)


def drain(front: Front, clock: Clock, *, leave_s: float, requests_s: float) -> str:
    """Empty the front and end it.

    Returns:
        A summary for the log.

    Raises:
        UnavailableError: the front does not answer. Kubernetes then signals the server anyway.
    """
    front.close_connections()
    clock.sleep(leave_s)
    front.stop_listening()
    began = clock.monotonic()
    while (requests := front.requests_in_flight()) and clock.monotonic() - began < requests_s:
        clock.sleep(POLL_S)
    front.quit()
    cut = f"; cut {requests} requests that took longer than {requests_s:g} s" if requests else ""
    return f"drained the front in {leave_s + clock.monotonic() - began:.1f} s{cut}"
