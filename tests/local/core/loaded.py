"""A process whose load test has clients in two others: `python -m tests.local.core.loaded`; it prints their ids.

It ends as a step does on SIGTERM.
"""

import multiprocessing
import os
import signal
import sys
import time

from slipway.tasks import command
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.load_clients import Load, Turn
from slipway.tasks.adapters.load.load_processes import LoadProcesses
from slipway.tasks.adapters.load.paced_server import LOOPBACK, MODEL, PacedServer
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.spec.load_level import LoadLevel
from tests.local.core.words import Words


def main():
    load = Load(MODEL, [GenerateRequest("question", 1000)], 60.0, Words(), time.monotonic())
    with PacedServer(first_s=0.1, gap_s=0.1, clients=4) as server, LoadProcesses(load, 2) as processes:
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        address = ServiceAddress(LOOPBACK, {"http": 9, "grpc": server.port})
        processes.play(Turn(LoadLevel(concurrency=4), 0, "candidate", address, 4))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, command._end)
    try:
        main()
    except command.Signalled as ended:
        sys.stdout.flush()
        os._exit(ended.exit_code)
