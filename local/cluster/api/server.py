"""Assembles the parts and runs them until the server is stopped."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from .. import NOT_ENFORCED
from ..access import certificate
from ..access.access import Access, write_private
from ..access.authorization import Authorizer, add_default_roles
from ..access.gate import Gate
from ..access.tokens import TokenIssuer
from ..addresses import Addresses
from ..commands import START_NODE, STOP_GRACE_S, STOP_NODE, STOP_PATH
from ..control.garbage import Deletion
from ..control.node_lifecycle import GRACE_S as NODE_GRACE_S
from ..control.node_lifecycle import NodeLifecycle
from ..control.workloads import Workloads
from ..network.endpoints import EndpointWriter
from ..network.gateway import GatewayController
from ..network.proxy import ServiceProxy
from ..node.attempts import end_containers
from ..node.eviction import GRACE_S
from ..node.images import ImageTable
from ..node.kubelet import Kubelet
from ..node.node import Node, NodeSettings
from ..node.podlogs import PodLogs
from ..objects.store import Store
from ..rules.quotas import QuotaStatus
from .api import HOLD_S, Api
from .objects import Objects

HOST = "127.0.0.1"  # a pod is a process of this user, so no other machine may start one


@dataclass(frozen=True)
class Settings:
    """Settings from the command line."""

    state: Path
    port: int
    kubeconfig: Path
    name: str
    """Name of the node, the certificate and the kubeconfig's context."""
    images: Path
    places: Mapping[str, Path]
    """Values of the placeholders in the table of images."""
    node: NodeSettings
    gateway: Path | None = None
    """The Envoy that serves Gateways; without one they are only recorded."""
    hold_s: float = HOLD_S
    """How long the answer to a created pod waits for its start."""
    eviction_grace_s: float = GRACE_S
    """How long an evicted pod has to end before it is killed."""
    node_grace_s: float = NODE_GRACE_S
    """How long after its end a kubelet still counts as there."""


class Server:
    """One cluster on one state folder."""

    def __init__(self, settings: Settings) -> None:
        """Open the state without starting anything.

        Raises:
            AddressError: no range of addresses can be used.
            ValueError: the table of images is not valid.
        """
        self._settings = settings
        state = settings.state
        images = ImageTable(settings.images, settings.places)
        self._addresses = Addresses(state)
        self._store = Store(state / "objects.sqlite")
        self._access = Access.of(state)
        self._access.certificate, self._tls = certificate.ensure(state, settings.name)
        self._deletion = Deletion(self._store, state / "claims")
        self._objects = Objects(self._store, self._deletion, self._addresses, settings.name)
        self._quotas = QuotaStatus(self._store)
        self._endpoints = EndpointWriter(self._store)
        self._proxy = ServiceProxy(self._store, settings.name)
        tokens = TokenIssuer(self._store, state)
        credentials, programs = (self._access, tokens), settings.places.values()
        self._node = Node(
            settings.name, self._store, state, self._addresses, images, credentials, programs, settings.node
        )
        self._kubelet = Kubelet(self._store, self._node, settings.eviction_grace_s)
        self._node_lifecycle = NodeLifecycle(self._store, self._kubelet, settings.name, settings.node_grace_s)
        self._workloads = Workloads(self._store, self._objects.create_pod, self._deletion.delete, settings.name)
        self._gateway: GatewayController | None = None
        if settings.gateway:
            self._gateway = GatewayController(self._store, state, self._node.address, settings.gateway)
        self._stopping = asyncio.Event()
        self._stop_pods = False
        gate = Gate(self._access, tokens, Authorizer(self._store))
        commands = {
            STOP_PATH: self.stop_with_pods,
            STOP_NODE: self._node_lifecycle.stop_node,
            START_NODE: self._node_lifecycle.start_node,
        }
        self._api = Api(self._objects, PodLogs(self._store, state), gate, commands, settings.hold_s)

    async def stop_with_pods(self) -> None:
        """Make `serve` stop every container and then return."""
        self._stop_pods = True
        self._stopping.set()

    async def serve(self) -> None:
        """Announce the port, and serve until SIGTERM, SIGINT or `stop_with_pods`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        runner = web.AppRunner(self._api.application(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        self._objects.add_system_namespaces()
        add_default_roles(self._store)
        await self._listen(runner)
        self._kubelet.start()
        self._endpoints.start()
        self._deletion.resume()
        tasks = [asyncio.create_task(part.run()) for part in (self._workloads, self._proxy)]
        if self._gateway is not None:
            tasks.append(asyncio.create_task(self._gateway.run()))
        self._announce()
        try:
            await self._stopping.wait()
        finally:
            self._api.end_streams()
            await runner.cleanup()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._node_lifecycle.close()
            await self._kubelet.close()
            if self._stop_pods:
                await asyncio.to_thread(end_containers, self._settings.state / "pods", grace_s=STOP_GRACE_S)
            self._store.close()
            self._addresses.close()
            (self._settings.state / "server.json").unlink(missing_ok=True)

    async def _listen(self, runner: web.AppRunner) -> None:
        """Listen on the given port, or else on the last port of this folder, which kubeconfigs name."""
        record = self._settings.state / "port"
        ports = [self._settings.port]
        if ports == [0] and record.exists():
            ports = [int(record.read_text()), 0]
        for port in ports:
            with contextlib.suppress(OSError) if port != ports[-1] else contextlib.nullcontext():
                await web.TCPSite(runner, HOST, port, ssl_context=self._tls).start()
                break
        self._access.port = runner.addresses[0][1]
        record.write_text(str(self._access.port))

    def _announce(self) -> None:
        self._access.write(self._settings.kubeconfig, context=self._settings.name, namespace="default")
        line = json.dumps({"port": self._access.port, "pid": os.getpid(), "confinement": self._node.confinement})
        write_private(self._settings.state / "server.json", line)
        sys.stdout.write(f"{line}\n{NOT_ENFORCED}\n")
        sys.stdout.flush()
