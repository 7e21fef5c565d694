"""Serves a cluster with the settings of a command line."""

import argparse
import asyncio
import errno
import logging
import os
import sys
from pathlib import Path

from .addresses import AddressError
from .api.api import HOLD_S
from .api.server import Server, Settings
from .commands import StateInUseError, locked
from .control.node_lifecycle import GRACE_S as NODE_GRACE_S
from .node.eviction import GRACE_S
from .node.node import NodeSettings
from .node.restarts import NOTICE_S

EXIT_WRONG_INPUT = 65


def serve(program: str, description: str | None, arguments: list[str]) -> int:
    """Serve until SIGTERM, after which pods keep running.

    Returns:
        0, or 65 if the cluster cannot be started, with the reason on stderr.
    """
    settings = _settings(program, description, arguments)
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


async def _serve(settings: Settings) -> None:
    await Server(settings).serve()


def _settings(program: str, description: str | None, arguments: list[str]) -> Settings:
    parser = argparse.ArgumentParser(prog=program, description=description)
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
