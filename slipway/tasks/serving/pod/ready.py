"""Answers a probe of a server: are its models ready? With `--within-s` it waits until they are.

Every failed probe is a warning among the pod's events, so the startup probe waits while models load instead of failing
once a second. Every probe is a process of its own, so nothing but the standard library is imported.

    POD_IP=10.0.0.7 python -m slipway.tasks.serving.pod.ready --port=9000 [--within-s=600] MODEL...
"""

import argparse
import http.client
import os
import sys
import time
from collections.abc import Sequence

TIMEOUT_S = 4.0
"""For each model; Kubernetes gives a probe five seconds or more."""
POLL_S = 0.25


def not_ready(host: str, port: int, models: Sequence[str]) -> list[str]:
    """The models that do not take requests, each with Triton's status or the error instead of it."""
    problems = []
    for model in models:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", f"/v2/models/{model}/ready")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            problems.append(f"{model}: {error}")
        else:
            problems += [f"{model}: HTTP status {status}"] if status != http.client.OK else []
        finally:
            connection.close()
    return problems


def await_ready(host: str, port: int, models: Sequence[str], within_s: float) -> list[str]:
    """What `not_ready` says once it says nothing, or after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while (problems := not_ready(host, port, models)) and time.monotonic() + POLL_S < deadline:
        time.sleep(POLL_S)
    return problems


def main(arguments: Sequence[str], host: str) -> int:
    """Print what is not ready, which Kubernetes shows as the pod's event.

    Returns:
        0 if all models are ready, else 1.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--within-s", type=float, default=0.0, help="how long to wait for the models")
    parser.add_argument("models", nargs="+")
    options = parser.parse_args(arguments)
    problems = await_ready(host, options.port, options.models, options.within_s)
    if problems:
        sys.stderr.write(f"not ready: {', '.join(problems)}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ["POD_IP"]))
