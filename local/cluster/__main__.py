"""Serve a cluster, `stop` one with everything that runs in it, or take its node away and bring it back."""

import argparse
import asyncio
import contextlib
import errno
import http.client
import json
import logging
import os
import ssl
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .access.access import Access
from .addresses import AddressError
from .api.api import HOLD_S, START_NODE, STOP_NODE, STOP_PATH
from .api.server import STOP_GRACE_S, Server, Settings, StateInUseError, locked
from .control.node_lifecycle import GRACE_S as NODE_GRACE_S
from .node import shim
from .node.eviction import GRACE_S
from .node.kubelet import end_containers
from .node.node import NodeSettings
from .node.restarts import NOTICE_S

EXIT_WRONG_INPUT = 65
PROGRAM = f"python -m {__package__}"
STOP_TIMEOUT_S = STOP_GRACE_S + 20


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM, after which pods keep running; or stop everything.

    Returns:
        0, or 65 if the cluster cannot be started, with the reason on stderr.
    """
    if arguments[:1] and arguments[0] in COMMANDS:
        description, run = COMMANDS[arguments[0]]
        parser = argparse.ArgumentParser(prog=f"{PROGRAM} {arguments[0]}", description=description)
        parser.add_argument("--state", type=Path, required=True)
        run(parser.parse_args(arguments[1:]).state.resolve())
        return 0
    settings = _settings(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    os.umask(0o077)
    try:
        with locked(settings.state):
            asyncio.run(_serve(settings))
    except (StateInUseError, AddressError, ValueError, OSError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = f"port {settings.port} is taken, expected a free one. Give another, or 0." if taken else error
        sys.stderr.write(f"cluster: {why}\n")
        return EXIT_WRONG_INPUT
    return 0


def stop(state: Path) -> None:
    """Stop every container of `state` and its server, and wait for them. The server may already be dead."""
    if not state.exists():
        return
    try:
        with locked(state):
            end_containers(state / "pods", grace_s=STOP_GRACE_S)
    except StateInUseError:
        pid = json.loads((state / "server.json").read_text())["pid"]
        _command(state, STOP_PATH)
        _wait_for_end(state, pid)


def _command(state: Path, path: str) -> None:
    """Ask the running server of `state` to do what one of its own paths does."""
    headers = {"Authorization": f"Bearer {Access.of(state).token}"}
    trusted = ssl.create_default_context(cafile=state / "server.crt")
    connection = http.client.HTTPSConnection(
        "127.0.0.1", int((state / "port").read_text()), timeout=30, context=trusted
    )
    connection.request("POST", path, headers=headers)
    connection.getresponse().read()
    connection.close()


def _wait_for_end(state: Path, pid: int) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        # the server has the folder while it is still stopping its pods
        with contextlib.suppress(StateInUseError), locked(state):
            if shim.start_ticks(pid) is None:
                return
        time.sleep(0.05)
    raise SystemExit(f"the cluster on {state} did not end within {STOP_TIMEOUT_S:.0f} s")


COMMANDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "stop": ("Stop pods and server.", stop),
    "stop-node": (
        "Stop the kubelet: containers go on, and the node becomes NotReady.",
        partial(_command, path=STOP_NODE),
    ),
    "start-node": ("Start the kubelet again.", partial(_command, path=START_NODE)),
}


async def _serve(settings: Settings) -> None:
    await Server(settings).serve()


def _settings(arguments: list[str]) -> Settings:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="folder for objects, pods, server.json")
    parser.add_argument("--port", type=int, default=0, help="0: the folder's last port, or a free one (default)")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="where to write the kubeconfig, mode 0600")
    parser.add_argument("--name", default="local", help="name of node, certificate and kubeconfig context")
    parser.add_argument("--images", type=Path, required=True, help="table of images")
    parser.add_argument("--gateway", type=Path, help="an Envoy, which serves Gateways of class embedded")
    parser.add_argument(
        "--notice-s", type=float, default=NOTICE_S, help="seconds between looks at containers (default: 0, at once)"
    )
    parser.add_argument(
        "--hold-s", type=float, default=HOLD_S, help="seconds to wait for a created pod's start (default: 0.6)"
    )
    parser.add_argument(
        "--eviction-grace-s", type=float, default=GRACE_S, help="seconds that an evicted pod has to end (default: 1)"
    )
    parser.add_argument(
        "--node-grace-s",
        type=float,
        default=NODE_GRACE_S,
        help="seconds for which a silent kubelet counts as ready (default: 50)",
    )
    parser.add_argument(
        "--place", type=_place, action="append", default=[], metavar="NAME=FOLDER", help="value of ${NAME} in the table"
    )
    parser.add_argument(
        "--device", type=_device, action="append", default=[], metavar="NAME=COUNT", help="an extended resource"
    )
    parser.add_argument(
        "--label", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="a label of the node"
    )
    given = parser.parse_args(arguments)
    return Settings(
        state=given.state.resolve(),
        port=given.port,
        kubeconfig=given.kubeconfig.resolve(),
        name=given.name,
        images=given.images.resolve(),
        places=dict(given.place),
        gateway=given.gateway.absolute() if given.gateway else None,
        node=NodeSettings(given.notice_s, dict(given.device), dict(given.label)),
        hold_s=given.hold_s,
        eviction_grace_s=given.eviction_grace_s,
        node_grace_s=given.node_grace_s,
    )


def _place(text: str) -> tuple[str, Path]:
    name, folder = _pair(text)
    if not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=FOLDER")
    return name, Path(folder).resolve()


def _device(text: str) -> tuple[str, int]:
    name, count = _pair(text)
    if "/" not in name or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected such as nvidia.com/gpu=1")
    return name, int(count)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
