"""`python -m bench.serving.front`: what the front of a serving pod costs, against the same Triton without it.

A Triton with a model that returns its input, so that nothing else takes time, and an Envoy with the configuration of
serving pods. Clients keep their connections; direct rounds and rounds through the front take turns.
"""

import http.client
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from bench.pod import ADDRESS, DIRECT, FRONT, Model, pod

CONCURRENCIES = (1, 16)
ROUNDS, ROUND_S = 5, 1.5
MODEL = """
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [utils.get_input_tensor_by_name(request, "text_input").as_numpy() for request in requests]
        return [utils.InferenceResponse([utils.Tensor("text_output", tensor)]) for tensor in tensors]
"""
CONFIG = """
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
    with tempfile.TemporaryDirectory() as folder, pod(Path(folder), {"echo": Model(CONFIG, MODEL)}):
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


if __name__ == "__main__":
    sys.exit(main())
