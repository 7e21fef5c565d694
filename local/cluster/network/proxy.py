"""Services as TCP proxies: from clusterIP:port to the ready endpoints, in turn.

If none is ready, terminating endpoints that still serve get new connections, as with kube-proxy:
https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/proxy/topology.go. If there are none of these either, nothing
listens, so a client is refused at once. A connection keeps its endpoint until one side ends it, even after the endpoint
has left the Service.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..objects.eventlog import EventLog
from ..objects.resources import ENDPOINT_SLICES, SERVICES, Object
from ..objects.status import invalid
from ..objects.store import Change, Store
from .endpoints import SERVICE_LABEL, slices

CHUNK_BYTES = 65536
CONNECT_TIMEOUT_S = 5.0
RETRY_S = 5.0
BACKLOG = 512
log = logging.getLogger(__name__)
Address = tuple[str, int]


class Listener:
    """One port of one Service."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.targets: list[Address] = []
        self._next = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def listening(self) -> bool:
        """Whether clients can connect."""
        return self._server is not None

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: the port is taken or not permitted.
        """
        self._server = await asyncio.start_server(self._accept, *self.address, backlog=BACKLOG)

    async def close(self) -> None:
        """Refuse new connections and keep the existing ones."""
        if self._server is not None:
            server, self._server = self._server, None
            server.close()

    def cut(self) -> None:
        """End every connection."""
        for task in self._connections:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await self._connect()
        if upstream is None:
            writer.transport.abort()
            return
        there, back = upstream
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, back))
                pumps.create_task(_pump(there, writer))
        except* OSError:
            # One side reset the connection. The other is reset too: an orderly end would mean that all data was sent.
            writer.transport.abort()
            back.transport.abort()
        finally:
            back.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the next endpoint that accepts one. Nothing has been sent yet, so each may be tried."""
        tried: set[Address] = set()
        while candidates := [target for target in self.targets if target not in tried]:
            target = candidates[self._next % len(candidates)]
            self._next += 1
            tried.add(target)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(*target)
        return None


class ServiceProxy:
    """Listens for every Service that has ready endpoints."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._events = EventLog(store, "service-proxy", node)
        self._listeners: dict[Address, Listener] = {}
        self._failed: set[Address] = set()
        self._changed = asyncio.Event()
        store.subscribe(self._notice)

    async def run(self) -> None:
        """Open and close ports as Services and endpoints change."""
        self._changed.set()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), RETRY_S if self._failed else None)
                self._changed.clear()
                await self._align()
        finally:
            for listener in self._listeners.values():
                await listener.close()
                listener.cut()

    def _notice(self, change: Change) -> None:
        if change.resource is ENDPOINT_SLICES and change.new is not None:
            name = (change.new["metadata"].get("labels") or {}).get(SERVICE_LABEL, "")
            service = self._store.get(SERVICES, change.new["metadata"]["namespace"], name)
            if service is not None:
                self._retarget(service)
        if change.resource in (ENDPOINT_SLICES, SERVICES):
            self._changed.set()

    def _retarget(self, service: Object) -> None:
        """Apply a change to new connections at once, before any port is opened or closed."""
        for port in service["spec"].get("ports") or []:
            listener = self._listeners.get((service["spec"].get("clusterIP", ""), port["port"]))
            if listener is not None:
                listener.targets = self._targets(service, port)

    def _targets(self, service: Object, port: Mapping[str, Any]) -> list[Address]:
        return ready_addresses(self._store, service, port)

    async def _align(self) -> None:
        listening: dict[Address, tuple[Object, list[Address]]] = {}
        for service in self._store.all(SERVICES):
            host = service["spec"].get("clusterIP")
            if not host or host == "None":
                continue
            for port in service["spec"].get("ports") or []:
                listening[host, port["port"]] = (service, self._targets(service, port))
        for address in [address for address in self._listeners if address not in listening]:
            await self._listeners.pop(address).close()
        self._failed &= listening.keys()
        for address, (service, targets) in listening.items():
            listener = self._listeners.setdefault(address, Listener(address))
            listener.targets = targets
            if targets and not listener.listening:
                await self._open(listener, service)
            elif not targets and listener.listening:
                await listener.close()

    async def _open(self, listener: Listener, service: Object) -> None:
        try:
            await listener.open()
        except OSError as error:
            host, port = listener.address
            self._events.warning(service, "FailedToListen", f"cannot listen on {host}:{port}: {error.strerror}")
            self._failed.add(listener.address)
        else:
            self._failed.discard(listener.address)


def ready_addresses(store: Store, service: Object, port: Mapping[str, Any]) -> list[Address]:
    """Return the endpoints that new connections to a Service's port may use."""
    endpoint_slices = slices(store, service)
    ready = [address for one in endpoint_slices for address in _addresses(one, port, _is_ready)]
    return ready or [address for one in endpoint_slices for address in _addresses(one, port, _is_ending_and_serves)]


def check_ports(service: Object) -> None:
    """Refuse a Service whose ports could not be opened.

    Raises:
        ApiError: 422, with the port and the system's error.
    """
    host = service["spec"].get("clusterIP")
    problems = []
    for index, port in enumerate(service["spec"].get("ports") or []):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port["port"]))
            except (OSError, OverflowError) as error:
                if getattr(error, "errno", None) == errno.EADDRINUSE and "uid" in service["metadata"]:
                    continue
                text = f"Invalid value: {port['port']}: cannot listen on {host}: {error}"
                problems.append((f"spec.ports[{index}].port", text))
    if problems:
        raise invalid(SERVICES, service["metadata"]["name"], problems)


def _addresses(
    one: Object, port: Mapping[str, Any], wanted: Callable[[Mapping[str, bool | None]], bool]
) -> Iterator[Address]:
    numbers = [its["port"] for its in one.get("ports") or [] if its.get("name", "") == port.get("name", "")]
    for endpoint in one.get("endpoints") or []:
        if wanted(endpoint.get("conditions") or {}):
            yield from ((address, number) for address in endpoint["addresses"] for number in numbers)


def _is_ready(conditions: Mapping[str, bool | None]) -> bool:
    return conditions.get("ready") is not False  # an absent condition counts as ready


def _is_ending_and_serves(conditions: Mapping[str, bool | None]) -> bool:
    return bool(conditions.get("serving")) and bool(conditions.get("terminating"))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):
            writer.write_eof()
