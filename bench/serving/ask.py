"""`python -m bench.serving.ask NAME`: how long a person waits for a model's first token, against a bare client.

Both are fresh processes, timed from their start to the first byte of the answer. `slipway ask` looks up the Service and
forwards a port through the Kubernetes API. Its peer gets the Service's address and sends the request over gRPC with
tritonclient, as a program in the cluster would. They take turns; medians are compared. Needs a stack (`make up`) where
NAME is live.
"""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from slipway.cli.settings import Settings

REPOSITORY = Path(__file__).resolve().parent.parent.parent
READINGS = 5
QUESTION = "What is the capital of France?"
PEER = """
import sys
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient

host, http, grpc, model, question = sys.argv[1:]
with TritonClient(host, int(http), int(grpc)) as client:
    for chunk in client.stream(model, GenerateRequest(question, 128), 60):
        print(chunk.text, end="", flush=True)
"""


def main(arguments: list[str]) -> int:
    """Print wall and CPU seconds of both, and the ratio."""
    if len(arguments) != 1:
        print("usage: python -m bench.serving.ask NAME", file=sys.stderr)
        return 65
    name = arguments[0]
    environment = dict(os.environ)
    address = Settings.resolve(environment).cluster().live_address(name)
    if address is None:
        print(f"{name} is not live; release it first", file=sys.stderr)
        return 65
    where = [address.host, str(address.ports["http"]), str(address.ports["grpc"])]
    commands = {
        "slipway ask": [sys.executable, "-m", "slipway", "ask", name, QUESTION],
        "tritonclient": [sys.executable, "-c", PEER, *where, name, QUESTION],
    }
    environment["PYTHONPATH"] = str(REPOSITORY)
    readings: dict[str, list[tuple[float, float]]] = {each: [] for each in commands}
    for _ in range(READINGS):
        for each, command in commands.items():
            readings[each].append(first_token(command, environment))
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}; median of {READINGS}")
    seconds = {}
    for each, pairs in readings.items():
        seconds[each] = median(wall_s for wall_s, _ in pairs)
        print(f"{each:13} first token after {seconds[each]:.2f} s, {median(cpu_s for _, cpu_s in pairs):.2f} s of CPU")
    print(f"ratio {seconds['slipway ask'] / seconds['tritonclient']:.2f}; load {os.getloadavg()[0]:.1f}")
    return 0


def first_token(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds from the start to the first byte of the answer, and CPU seconds of the whole process."""
    before = os.times()
    started_at = time.monotonic()
    with subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        wall_s = time.monotonic() - started_at
        process.stdout.read()
    if process.returncode or not first:
        raise SystemExit(f"{' '.join(command[:4])} ended with {process.returncode}")
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall_s, used


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
