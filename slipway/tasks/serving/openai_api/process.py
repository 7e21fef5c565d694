"""openai: the process beside Triton that answers /v1/... of the pod's front. It runs until it is told to end.

One process passes on some thousands of tokens per second (docs/decisions/0022). With several sockets there is a process
for each, and the front sends a request to the one with the fewest in flight.
"""

import argparse
import asyncio
import multiprocessing
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path

from slipway.tasks.adapters.importing import importing
from slipway.tasks.adapters.telemetry import log_lines
from slipway.tasks.contracts.errors import PipelineError

APPLICATION = "slipway.tasks.serving.openai_api.application"
KEPT_S = 86_400
"""The front decides when its connections to this process end: one that is closed here could be in use there."""
HEADER_BYTES = 64 << 10
"""Of one header: the front's limit of 60 KiB for all of them counts, for both APIs. aiohttp's own limit is 8,190."""
WAITING = 1024
"""Connections that a process has not taken up yet."""
END_S = 10.0
"""Time for a process to end; there are no requests left when a pod ends its sidecars."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that slipway/tasks/serving/rendered/front.py writes."""
    parser.add_argument(
        "--socket",
        type=Path,
        action="append",
        required=True,
        help="Unix socket to listen on; its path has 107 bytes. Repeat it for as many processes",
    )
    parser.add_argument("--triton-host", required=True)
    parser.add_argument("--triton-port", type=int, required=True, help="Triton's HTTP port")
    parser.add_argument("--release", required=True, help="what clients read as system_fingerprint")
    parser.add_argument("--logs", choices=("text", "json"), default="text", help="form of the log lines")
    parser.add_argument("--clients", action="store_true", help="the front says whose key a request had")
    parser.add_argument(
        "--tokens-per-minute",
        type=_quota,
        action="append",
        default=[],
        metavar="NAME=N",
        help="tokens that the keys of a name may use of this process, * for all others; repeat it for several",
    )
    parser.add_argument(
        "--turns",
        type=_turns,
        metavar="N/M",
        help="share the models out by client: they answer N requests at once, and M may be here",
    )
    parser.add_argument("--adapters", type=Path, help="folder of the adapters that come and go while the model is live")
    parser.add_argument("--model", action="append", required=True, help="name of a model; repeat it for several")


def _quota(text: str) -> tuple[str, int]:
    name, number = text.split("=")
    return name, int(number)


def _turns(text: str) -> tuple[int, int]:
    at_once, room = map(int, text.split("/"))
    return at_once, room


def run(parsed: argparse.Namespace, _: Mapping[str, str]) -> str:
    """Answer OpenAI's API until the process is told to end; return a summary for the log."""
    log_lines.configure(parsed.logs, sys.stdout, {"step": parsed.step, "release": parsed.release})
    serve(parsed)
    return "ended"


def serve(parsed: argparse.Namespace) -> None:
    """Answer requests until the process is told to end.

    Raises:
        PipelineError: one of several processes ended by itself. The container ends with it, and is started again.
    """
    with importing():
        import_module(APPLICATION)  # once, for all processes
    # the front prefers the process with the fewest requests in flight, and one that refuses connections has none. The
    # pod is ready as soon as one process answers, so every socket listens before that
    listening = [_listening(path) for path in parsed.socket]
    if len(listening) == 1:
        asyncio.run(_serve(parsed, listening[0]))
        return
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_worker, args=(parsed, listening, each)) for each in listening]
    try:
        for process in processes:
            process.start()
        for each in listening:  # each is its process's alone: if that ends, connections are refused
            each.close()
        ready = wait([process.sentinel for process in processes])
        ended = next(process for process in processes if process.sentinel in ready)
        ended.join(END_S)  # its sentinel closes a moment before its exit code is known
        raise PipelineError(f"a process of OpenAI's API ended with {ended.exitcode}", remedy="See the container's log.")
    finally:
        started = [process for process in processes if process.pid]  # a signal may come before all have
        for process in started:
            process.terminate()
        for process in started:
            process.join(END_S)
            process.kill()


def _listening(path: Path) -> socket.socket:
    """A Unix socket, in place of one that an earlier process left there."""
    if path.is_socket():
        path.unlink()
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen(WAITING)
    return made


def _worker(parsed: argparse.Namespace, listening: Sequence[socket.socket], own: socket.socket) -> None:
    """Serve one socket of all; end with SIGTERM, or when the parent is gone."""
    for each in listening:
        if each is not own:
            each.close()

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        parent = multiprocessing.parent_process()
        assert parent is not None
        loop.add_reader(parent.sentinel, stop.set)
        serving = asyncio.ensure_future(_serve(parsed, own))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if stop.is_set():
            serving.cancel()
            await asyncio.wait([serving])
        else:
            serving.result()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to every process; the parent ends this one
    asyncio.run(run())


async def _serve(parsed: argparse.Namespace, listening: socket.socket) -> None:
    from aiohttp import web

    from slipway.tasks.adapters.triton.triton_generate import GenerateStreams
    from slipway.tasks.serving.openai_api.application import Routes
    from slipway.tasks.serving.openai_api.generation.generate import EVERYBODYS
    from slipway.tasks.serving.openai_api.generation.turns import Turns

    async with GenerateStreams(parsed.triton_host, parsed.triton_port) as triton:
        others = [each for each in parsed.socket if str(each) != listening.getsockname()]
        routes = Routes(
            triton,
            parsed.model,
            parsed.release,
            others=others,
            names_clients=parsed.clients,
            quotas=dict(parsed.tokens_per_minute),
            turns=Turns(*parsed.turns) if parsed.turns else EVERYBODYS,
            adapters=parsed.adapters,
        )
        runner = web.AppRunner(
            routes.application(),
            access_log=None,
            handler_cancellation=True,  # a client that leaves cancels its handler, which cancels the request in Triton
            keepalive_timeout=KEPT_S,
            auto_decompress=False,  # within bounds: bodies.py
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        await runner.setup()
        try:
            await web.SockSite(runner, listening, backlog=WAITING).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
