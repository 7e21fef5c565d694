"""Answers the liveness probe of a Triton: are its models there, and do those that have requests make progress?

A model whose process hangs is still ready. Triton counts it: requests wait (`nv_inference_pending_request_count`) and
none is answered. Slipway's models take a request at once, however long its answer takes, so that none waits for long.
Every probe is a process of its own, so nothing but the standard library is imported.

    POD_IP=10.0.0.7 python -m slipway.tasks.serving.pod.live --port=9000 --metrics-port=8002 --stalled-s=600 PATH...
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT_S = 8.0
STATE = Path("/tmp/slipway-live.json")  # noqa: S108 - the container's
MOST_GAP_S = 90.0
"""Three periods of the probe. After a longer gap another server may run, which is not blamed for the last one's."""
COUNTS = re.compile(r'^nv_inference_(pending_request_count|request_success|request_failure)\{model="([^"]+)".*\} (\d+)')

Seen = dict[str, tuple[int, float]]
"""Requests that each model with waiting requests has answered, and since when it has answered so many."""


def waiting(metrics: str) -> dict[str, int]:
    """The models with waiting requests, each with the number of requests that it has answered."""
    pending: dict[str, int] = {}
    answered: dict[str, int] = {}
    for line in metrics.splitlines():
        if found := COUNTS.match(line):
            kind, model, number = found.groups()
            counts = pending if kind == "pending_request_count" else answered
            counts[model] = counts.get(model, 0) + int(number)
    return {model: answered.get(model, 0) for model, number in pending.items() if number}


def noted(now: float, before: Seen, counts: Mapping[str, int]) -> Seen:
    """What is known now of the models with waiting requests."""
    return {
        model: (number, before[model][1] if model in before and before[model][0] == number else now)
        for model, number in counts.items()
    }


def read_state(path: Path, now: float) -> Seen:
    """What the last probe noted; nothing if that was too long ago."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        recent = 0 <= now - state["at"] <= MOST_GAP_S
        return {model: (number, since) for model, (number, since) in state["seen"].items()} if recent else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def problems(
    host: str, port: int, metrics_port: int, paths: Sequence[str], *, stalled_s: float, state: Path, now: float
) -> list[str]:
    """Why the server must be restarted; empty if it need not be."""
    found = [
        f"{path}: HTTP status {status}" for path in paths if (status := _get(host, port, path)[0]) != http.client.OK
    ]
    seen = noted(now, read_state(state, now), waiting(_metrics(host, metrics_port)))
    with contextlib.suppress(OSError):  # a full disk is no reason to restart the server, which has lost only a note
        state.write_text(json.dumps({"at": now, "seen": seen}), encoding="utf-8")
    stalled = {model: now - since for model, (_, since) in seen.items() if now - since >= stalled_s}
    return [
        *found,
        *(f"{model}: requests wait, and none was answered for {age:.0f} s" for model, age in stalled.items()),
    ]


def _metrics(host: str, port: int) -> str:
    """The server's metrics. That they do not answer is no reason to restart it."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return _get(host, port, "/metrics")[1]
    return ""


def _get(host: str, port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


def main(arguments: Sequence[str], host: str, state: Path = STATE) -> int:
    """Print what is wrong, which Kubernetes shows as the pod's event.

    Returns:
        0 if the server makes progress, else 1.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--metrics-port", type=int, required=True)
    parser.add_argument("--stalled-s", type=float, required=True)
    parser.add_argument("paths", nargs="+")
    options = parser.parse_args(arguments)
    try:
        found = problems(
            host,
            options.port,
            options.metrics_port,
            options.paths,
            stalled_s=options.stalled_s,
            state=state,
            now=time.monotonic(),
        )
    except (OSError, http.client.HTTPException) as error:
        found = [f"Triton does not answer: {error}"]
    if found:
        sys.stderr.write(f"not alive: {', '.join(found)}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ["POD_IP"]))
