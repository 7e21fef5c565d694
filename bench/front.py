"""`python -m bench.front`: what the front of a serving pod costs, against the same Triton without it.

A Triton with a model that returns its input, so that nothing else takes time, and an Envoy with the configuration of
serving pods. Clients keep their connections; direct rounds and rounds through the front take turns.
"""

import http.client
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

REPOSITORY = Path(__file__).resolve().parent.parent
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
ADDRESS = "127.77.0.15"  # its own, because the ports are those of serving pods
FRONT, DIRECT = {"http": 8000, "grpc": 8001}, {"http": 9000, "grpc": 9001}
CONCURRENCIES = (1, 16)
ROUNDS, ROUND_S = 5, 3.0
READY_TIMEOUT_S = 60.0
CONFIG = """
from pathlib import Path
from tasks.serving import front
print(front.config({address!r}, 60, Path("k8s_manifests/serving")))
"""
MODEL = """
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [utils.get_input_tensor_by_name(request, "text_input").as_numpy() for request in requests]
        return [utils.InferenceResponse([utils.Tensor("text_output", tensor)]) for tensor in tensors]
"""
MODEL_CONFIG = """
backend: "python"
input [{ name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "text_output" data_type: TYPE_STRING dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
TEXT = "What is the capital of France?"

Ask = Callable[[], None]


@dataclass
class Measured:
    """Rounds of one path: requests per second, and every latency in milliseconds."""

    rates: list[float] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    def percentile(self, number: int) -> float:
        """A percentile of the latencies."""
        return quantiles(self.latencies_ms, n=100)[number - 1]


def main() -> int:
    """Print a line per protocol and number of clients."""
    print(f"{platform.machine()}, {os.cpu_count()} CPUs; {ROUNDS} rounds of {ROUND_S:g} s each; front / direct")
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)):
        for protocol, client in (("http", http_client), ("grpc", grpc_client)):
            for concurrency in CONCURRENCIES:
                direct, front = Measured(), Measured()
                for _ in range(ROUNDS):
                    measure(direct, lambda: client(DIRECT[protocol]), concurrency)  # noqa: B023 - called in the loop
                    measure(front, lambda: client(FRONT[protocol]), concurrency)  # noqa: B023
                print(f"{protocol}, {concurrency:2} clients: {compared(direct, front)}")
    return 0


def compared(direct: Measured, front: Measured) -> str:
    """Both paths and their ratios."""
    columns = [f"{median(front.rates):.0f} / {median(direct.rates):.0f} requests/s = "]
    columns[0] += f"{median(front.rates) / median(direct.rates):.2f}"
    for number in (50, 99):
        ours, theirs = front.percentile(number), direct.percentile(number)
        columns.append(f"p{number} {ours:.2f} / {theirs:.2f} ms = {ours / theirs:.2f}")
    return ", ".join(columns)


def measure(into: Measured, connect: Callable[[], Ask], concurrency: int) -> None:
    """One round: every client sends requests over its own connection until the time is up."""
    counts: list[list[float]] = [[] for _ in range(concurrency)]
    ends = time.perf_counter() + ROUND_S

    def run(latencies: list[float]) -> None:
        ask = connect()
        while (began := time.perf_counter()) < ends:
            ask()
            latencies.append((time.perf_counter() - began) * 1000)

    threads = [threading.Thread(target=run, args=(latencies,)) for latencies in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    into.rates.append(sum(map(len, counts)) / ROUND_S)
    into.latencies_ms += [latency for latencies in counts for latency in latencies]


def http_client(port: int) -> Ask:
    """A client of /generate over one connection."""
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=30)
    body = json.dumps({"text_input": TEXT})

    def ask() -> None:
        connection.request("POST", "/v2/models/echo/generate", body)
        response = connection.getresponse()
        if TEXT.encode() not in response.read():
            raise SystemExit(f"port {port} answered {response.status}")

    return ask


def grpc_client(port: int) -> Ask:
    """A client of ModelInfer over one channel of its own."""
    channel = grpc.insecure_channel(f"{ADDRESS}:{port}", [("grpc.use_local_subchannel_pool", 1)])
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [TEXT.encode()]}}
    request = service_pb2.ModelInferRequest(model_name="echo", inputs=[tensor])

    def ask() -> None:
        stub.ModelInfer(request, timeout=30)

    return ask


@contextmanager
def servers(folder: Path) -> Iterator[None]:
    """Triton and the front, until the block ends."""
    model = folder / "repository" / "echo"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(MODEL_CONFIG)
    (model / "1" / "model.py").write_text(MODEL)
    listening = [
        f"--{name}-{key}={value}" for name in DIRECT for key, value in (("address", ADDRESS), ("port", DIRECT[name]))
    ]
    triton = [str(ENVIRONMENTS / "triton" / "bin" / "tritonserver"), f"--model-repository={model.parent}", *listening]
    print_config = [str(ENVIRONMENTS / "tasks" / "bin" / "python"), "-c", CONFIG.format(address=ADDRESS)]
    config = subprocess.run(print_config, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    envoy = [str(ENVIRONMENTS / "front" / "bin" / "envoy"), "--disable-hot-restart", "--concurrency", "2"]
    commands = ([*triton, "--allow-metrics=false"], [*envoy, "--log-level", "warning", "--config-yaml", config])
    started = []
    try:
        for name, command in zip(("triton", "front"), commands, strict=True):
            with (folder / f"{name}.log").open("wb") as log:
                started.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
        wait_ready(folder)
        yield
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            process.wait()


def wait_ready(folder: Path) -> None:
    """Wait until the model answers through the front."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection(ADDRESS, FRONT["http"], timeout=5)
            connection.request("GET", "/v2/models/echo/ready")
            if connection.getresponse().status == http.client.OK:
                return
        except OSError:
            pass
        time.sleep(0.2)
    logs = "\n".join(log.read_text()[-1500:] for log in folder.glob("*.log"))
    raise SystemExit(f"nothing answered after {READY_TIMEOUT_S:.0f} s:\n{logs}")


if __name__ == "__main__":
    sys.exit(main())
