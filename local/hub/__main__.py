"""`python -m local.hub`: serve fixture repositories on a loopback port."""

import argparse
import asyncio
import errno
import json
import os
import secrets
import signal
import sys
from pathlib import Path

from aiohttp import web

from local.hub.declaration import FixtureError
from local.hub.repositories import load_repositories
from local.hub.server import HubServer
from local.private_files import write_private

HOST = "127.0.0.1"  # fixture tokens are not secret, so a machine's server must not be reachable from outside
EXIT_WRONG_INPUT = 65


def main() -> int:
    """Serve until SIGTERM or SIGINT.

    Returns:
        0, or 65 when the fixtures cannot be served or the port is taken; the reason is on stderr.
    """
    parser = argparse.ArgumentParser(prog="python -m local.hub", description=__doc__)
    parser.add_argument("--fixtures", type=Path, required=True, help="folder of <org>/<name>/repository.yaml")
    parser.add_argument("--state", type=Path, required=True, help="folder for server.json, access.jsonl and damaged/")
    parser.add_argument("--port", type=int, default=0, help="default: 0, a free port")
    parser.add_argument("--host", default=HOST, help="address to listen on; in a pod 0.0.0.0 (default: %(default)s)")
    parser.add_argument("--bytes-per-s", type=int, help="that all files together are sent at; default: no limit")
    arguments = parser.parse_args()
    arguments.state.mkdir(parents=True, exist_ok=True)
    try:
        repositories = load_repositories(arguments.fixtures, arguments.state)
    except FixtureError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_WRONG_INPUT
    admin_token = secrets.token_urlsafe(24)
    hub = HubServer(repositories, arguments.state / "access.jsonl", admin_token, arguments.bytes_per_s)
    announcement = arguments.state / "server.json"
    try:
        asyncio.run(_serve(hub.application(), arguments.host, arguments.port, admin_token, announcement))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        sys.stderr.write(f"hub: port {arguments.port} is taken, expected a free one. Give another, or 0.\n")
        return EXIT_WRONG_INPUT
    finally:
        announcement.unlink(missing_ok=True)
    return 0


async def _serve(app: web.Application, host: str, port: int, admin_token: str, announcement: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    where = {"port": runner.addresses[0][1], "pid": os.getpid()}
    write_private(announcement, json.dumps(where | {"admin_token": admin_token}) + "\n")
    # without the token: standard output becomes a log
    sys.stdout.write(json.dumps(where) + "\n")
    sys.stdout.flush()
    try:
        await stop.wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    sys.exit(main())
