"""Puts the parts together and runs them until somebody says stop."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from local.cluster import certificate
from local.cluster.access import Access, write_private
from local.cluster.addresses import Addresses
from local.cluster.api import Api
from local.cluster.endpoints import EndpointWriter
from local.cluster.garbage import Deletion
from local.cluster.images import load_images
from local.cluster.kubelet import Kubelet, end_containers
from local.cluster.node import Node
from local.cluster.objects import Objects
from local.cluster.podlogs import PodLogs
from local.cluster.proxy import ServiceProxy
from local.cluster.store import Store
from local.cluster.workloads import Workloads

HOST = "127.0.0.1"  # a pod is a process of this user, so nobody outside may start one
STOP_GRACE_S = 10.0


class StateInUseError(Exception):
    """Another server runs on the state folder."""


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    state: Path
    port: int
    kubeconfig: Path
    context: str
    images: Path
    environments: Path
    repository: Path


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the state folder.

    Raises:
        StateInUseError: another process holds it.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (state / "lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateInUseError(f"a cluster already runs on {state}; stop it first") from error
        yield


class Server:
    """One cluster on one state folder."""

    def __init__(self, settings: Settings) -> None:
        """Open the state; nothing runs yet.

        Raises:
            AddressError: there is no range of addresses.
            ValueError: the table of images is wrong.
        """
        self._settings = settings
        state = settings.state
        images = load_images(settings.images, {"ENVS": settings.environments, "REPO": settings.repository})
        self._addresses = Addresses(state)
        self._store = Store(state / "objects.sqlite")
        self._access = Access.of(state)
        self._access.certificate, self._tls = certificate.ensure(state)
        self._deletion = Deletion(self._store, state / "claims")
        self._objects = Objects(self._store, self._deletion, self._addresses)
        self._endpoints = EndpointWriter(self._store)
        self._proxy = ServiceProxy(self._store)
        self._node = Node(self._store, state, self._addresses, images, self._access)
        self._kubelet = Kubelet(self._store, self._node)
        self._workloads = Workloads(self._store, self._objects.create_pod, self._deletion.delete)
        self._stopping = asyncio.Event()
        self._stop_pods = False
        self._api = Api(self._objects, PodLogs(self._store, state), self._access, self.stop_with_pods)

    def stop_with_pods(self) -> None:
        """Ask `serve` to end every container and then itself."""
        self._stop_pods = True
        self._stopping.set()

    async def serve(self) -> None:
        """Announce the port, and serve until SIGTERM, SIGINT or `stop_with_pods`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        runner = web.AppRunner(self._api.application(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        await self._listen(runner)
        self._objects.add_system_namespaces()
        self._kubelet.start()
        self._endpoints.start()
        self._deletion.resume()
        tasks = [asyncio.create_task(part.run()) for part in (self._workloads, self._proxy)]
        self._announce()
        try:
            await self._stopping.wait()
        finally:
            self._api.end_streams()
            await runner.cleanup()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._kubelet.close()
            if self._stop_pods:
                await asyncio.to_thread(end_containers, self._settings.state / "pods", grace_s=STOP_GRACE_S)
            self._store.close()
            self._addresses.close()
            (self._settings.state / "server.json").unlink(missing_ok=True)

    async def _listen(self, runner: web.AppRunner) -> None:
        """Listen where asked, or where the last server of this folder did: kubeconfigs name the port."""
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
        self._access.write(self._settings.kubeconfig, context=self._settings.context, namespace="default")
        line = json.dumps({"port": self._access.port, "pid": os.getpid()})
        write_private(self._settings.state / "server.json", line)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
