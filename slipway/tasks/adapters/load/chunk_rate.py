"""How many chunks a second a process of the load generator can stamp as they arrive, measured when a load test starts.

The measurement sends chunks from this process to itself as fast as both ends can, so it is a property of the machine
as it is now. A process whose clients get chunks at a steady rate needs room for the moments at which many of its
threads wake up together. TRUSTED is the share of the measured rate that is assumed to be safe: with 128 clients the
load test reported what was sent up to 3,200 or 6,400 chunks a second, on two cores that other work needed too
(docs/performance.md).
"""

import time

from slipway.tasks.adapters.load.paced_server import LOOPBACK, MODEL, PacedServer
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient

TRUSTED = 0.25
CHUNKS = 200
FOR_S = 0.3
TIMEOUT_S = 30.0


def stamps_per_s(for_s: float = FOR_S) -> float:
    """Chunks that a process of this machine can stamp in a second, measured for `for_s` seconds."""
    return TRUSTED * loopback_chunks_per_s(for_s)


def loopback_chunks_per_s(for_s: float = FOR_S) -> float:
    """Chunks that this process sends to itself in a second, over gRPC."""
    request, chunks = GenerateRequest("", CHUNKS), 0
    with (
        PacedServer(first_s=0.0, gap_s=0.0, clients=1) as server,
        TritonClient(LOOPBACK, grpc_port=server.port) as client,
    ):
        client.prepare(MODEL, TIMEOUT_S)
        began_s = time.monotonic()
        while True:  # at least one answer: a pod may get no CPU for longer than `for_s`
            chunks += len(client.record(MODEL, request, TIMEOUT_S))
            if (took_s := time.monotonic() - began_s) >= for_s:
                return chunks / took_s
