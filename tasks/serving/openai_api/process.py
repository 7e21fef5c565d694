"""openai: the process beside Triton that answers /v1/... of the pod's front. It runs until it is told to end."""

import argparse
import asyncio
from pathlib import Path

KEPT_S = 86_400
"""The front decides when its connections to this process end: one that is closed here could be in use there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that tasks/serving/front.py writes."""
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket to listen on; its path has 107 bytes")
    parser.add_argument("--triton-host", required=True)
    parser.add_argument("--triton-port", type=int, required=True, help="Triton's HTTP port")
    parser.add_argument("--release", required=True, help="what clients read as system_fingerprint")
    parser.add_argument("--logs", choices=("text", "json"), default="text", help="form of the log lines")
    parser.add_argument("--model", action="append", required=True, help="name of a model; repeat it for several")


def serve(parsed: argparse.Namespace) -> None:
    """Answer requests until the process is told to end."""
    asyncio.run(_serve(parsed))


async def _serve(parsed: argparse.Namespace) -> None:
    from aiohttp import web

    from tasks.adapters.triton_generate import GenerateStreams
    from tasks.serving.openai_api.application import Routes

    async with GenerateStreams(parsed.triton_host, parsed.triton_port) as triton:
        application = Routes(triton, parsed.model, parsed.release).application()
        # a client that leaves cancels its handler, which cancels the request in Triton
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, keepalive_timeout=KEPT_S)
        await runner.setup()
        try:
            await web.UnixSite(runner, str(parsed.socket)).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
