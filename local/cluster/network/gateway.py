"""The data plane of the Gateway API: one Envoy that serves every Gateway of class CLASS on the node's address.

The routes' conditions speak of a generation only once Envoy serves it. Backends are pods, not Services, as with other
gateways; a Service's cluster is known to Envoy before a route names it, and stays for as long as the Service.
"""

import asyncio
import contextlib
import ctypes
import json
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector

from ..objects.resources import (
    ENDPOINT_SLICES,
    GATEWAYS,
    GRPC_ROUTES,
    HTTP_ROUTES,
    NAMESPACES,
    SERVICES,
    Object,
    Resource,
)
from ..objects.store import Change, Store, key_of
from . import gateway_config as envoy
from . import gateway_status as status
from .gateway_config import Address, Backend
from .gateway_routes import Attached, Refused, attach, backends
from .proxy import ready_addresses

CLASS = "embedded"
WATCHED = (GATEWAYS, HTTP_ROUTES, GRPC_ROUTES, ENDPOINT_SLICES, SERVICES, NAMESPACES)
TAKEN_UP_S, POLL_S = 10.0, 0.02
AGAIN_S = 5.0
"""Pause before the next try, such as after an Envoy that took longer than TAKEN_UP_S on a busy machine."""
STOP_S = 5.0
PR_SET_PDEATHSIG = 1
log = logging.getLogger(__name__)


class GatewayController:
    """Keeps Envoy's files and the statuses up to date. It does nothing until there is a Gateway of its class."""

    def __init__(self, store: Store, state: Path, address: str, program: Path) -> None:
        """`program` is Envoy."""
        self._store, self._folder, self._address, self._program = store, state / "gateway", address, program
        self._process: asyncio.subprocess.Process | None = None
        self._written: dict[str, Any] = {}
        self._version = 0
        self._changed = asyncio.Event()
        store.subscribe(self._notice)

    async def run(self) -> None:
        """Follow every change until cancelled."""
        self._changed.set()
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                try:
                    await self._align()
                except (OSError, ClientError, TimeoutError) as error:
                    log.warning("the gateway does not serve the newest routes: %s", error)
                    await asyncio.sleep(AGAIN_S)
                    self._changed.set()
        finally:
            await self._stop()

    def _notice(self, change: Change) -> None:
        if change.resource in WATCHED:
            self._changed.set()

    async def _align(self) -> None:
        gateways = [one for one in self._store.all(GATEWAYS) if one["spec"]["gatewayClassName"] == CLASS]
        if not gateways and self._process is None:
            return
        outcomes = list(self._outcomes(gateways))
        attached = [one for *_, outcome in outcomes if not isinstance(outcome, Refused) for one in outcome]
        known = self._known(attached)
        if self._process is None:
            await self._start()
        await self._program_envoy(gateways, attached, known)
        self._report(gateways, outcomes, attached)

    def _outcomes(
        self, gateways: list[Object]
    ) -> Iterator[tuple[Resource, Object, dict[str, Any], list[Attached] | Refused]]:
        """Each route at each of its parents that is one of these Gateways."""
        by_key = {key_of(one): one for one in gateways}
        for resource in (HTTP_ROUTES, GRPC_ROUTES):
            for route in self._store.all(resource):
                for parent in route["spec"].get("parentRefs") or []:
                    where = parent.get("namespace", route["metadata"]["namespace"])
                    if gateway := by_key.get((where, parent["name"])):
                        yield resource, route, parent, attach(route, parent, gateway, self._labels_of)

    def _labels_of(self, namespace: str) -> dict[str, str]:
        item = self._store.get(NAMESPACES, "", namespace) or {"metadata": {}}
        return {"kubernetes.io/metadata.name": namespace, **(item["metadata"].get("labels") or {})}

    def _known(self, attached: list[Attached]) -> frozenset[Backend]:
        """Ports of Services that exist, of those that routes name."""
        named = {
            envoy.backend_of(one, reference)
            for one in attached
            for rule in one.route["spec"].get("rules") or []
            for reference in backends(rule)
        }
        return frozenset(backend for backend in named if self._port_of(backend))

    def _port_of(self, backend: Backend) -> tuple[Object, dict[str, Any]] | None:
        namespace, name, number, _ = backend
        service = self._store.get(SERVICES, namespace, name)
        ports = (service or {"spec": {}})["spec"].get("ports") or []
        return next(((service, port) for port in ports if service and port["port"] == number), None)

    async def _program_envoy(self, gateways: list[Object], attached: list[Attached], known: frozenset[Backend]) -> None:
        clusters = known | {one for one in self._written.get("clusters", frozenset()) if self._port_of(one)}
        for backend in clusters:
            found = self._port_of(backend)
            assert found is not None
            self._write(f"{envoy.cluster_name(backend)}.json", [envoy.endpoints(backend, self._targets(*found))])
        version = self._write(envoy.CLUSTERS, [envoy.cluster(one, self._folder) for one in sorted(clusters)])
        self._written["clusters"] = clusters
        names = {envoy.cluster_name(one) for one in clusters}
        await self._taken_up({"cluster_manager.cds.version_text": version} if names else {}, names)
        ports = sorted({one["port"] for gateway in gateways for one in gateway["spec"]["listeners"]})
        versions = {
            f"http.port-{port}.rds.port-{port}.version_text": self._write(
                f"port-{port}.{envoy.ROUTES}",
                [envoy.routes(port, [one for one in attached if one.listener["port"] == port], known)],
            )
            for port in ports
        }
        self._write(envoy.LISTENERS, [envoy.listener((self._address, port), self._folder) for port in ports])
        await self._taken_up(versions, set())

    def _targets(self, service: Object, port: dict[str, Any]) -> list[Address]:
        return ready_addresses(self._store, service, port)

    def _write(self, name: str, resources: list[dict[str, Any]]) -> str:
        """Replace a file if its resources changed; return its version."""
        before = self._written.get(name)
        if before and before[1] == resources:
            return str(before[0])
        self._version += 1
        version = str(self._version)
        new = self._folder / f"{name}.new"
        new.write_text(json.dumps(envoy.response(version, resources)))
        new.rename(self._folder / name)
        self._written[name] = (version, resources)
        return version

    async def _taken_up(self, versions: dict[str, str], clusters: set[str]) -> None:
        """Wait until Envoy serves these versions, and has these clusters.

        Raises:
            TimeoutError: it does not; gateway/envoy.log in the state folder says why.
        """
        async with (
            asyncio.timeout(TAKEN_UP_S),
            ClientSession(
                connector=UnixConnector(str(self._folder / "admin.sock")), timeout=ClientTimeout(TAKEN_UP_S)
            ) as session,
        ):
            while True:
                with contextlib.suppress(ClientError, OSError):
                    if await self._serves(session, versions, clusters):
                        return
                await asyncio.sleep(POLL_S)

    @staticmethod
    async def _serves(session: ClientSession, versions: dict[str, str], clusters: set[str]) -> bool:
        async with session.get("http://envoy/stats?format=json&type=TextReadouts") as answer:
            stats = {one["name"]: one["value"] for one in json.loads(await answer.text())["stats"] if "name" in one}
        async with session.get("http://envoy/clusters?format=json") as answer:
            active = {one["name"] for one in json.loads(await answer.text()).get("cluster_statuses", [])}
        return clusters <= active and all(stats.get(name) == version for name, version in versions.items())

    def _report(self, gateways: list[Object], outcomes: list[Any], attached: list[Attached]) -> None:
        parents: dict[tuple[Resource, tuple[str, str]], list[Any]] = {}
        for resource, route, parent, outcome in outcomes:
            missing = sorted(
                {
                    reference["name"]
                    for rule in route["spec"].get("rules") or []
                    for reference in backends(rule)
                    if not self._port_of((key_of(route)[0], reference["name"], reference["port"], False))
                }
            )
            entry = status.of_parent(route, parent, outcome, missing)
            parents.setdefault((resource, key_of(route)), []).append(entry)
        for (resource, key), entries in parents.items():
            self._put_status(resource, key, {"parents": entries})
        for gateway in gateways:
            counts: dict[str, int] = {}
            for one in attached:
                if key_of(one.gateway) == key_of(gateway):
                    counts[one.listener["name"]] = counts.get(one.listener["name"], 0) + 1
            self._put_status(GATEWAYS, key_of(gateway), status.of_gateway(gateway, self._address, counts, {}))

    def _put_status(self, resource: Resource, key: tuple[str, str], new: dict[str, Any]) -> None:
        item = self._store.get(resource, *key)
        if item is not None and status.is_news(item.get("status"), new):
            self._store.modify(resource, *key, lambda its: its.update(status=new))

    async def _start(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._written.clear()
        with contextlib.suppress(FileNotFoundError):
            (self._folder / "admin.sock").unlink()
        for name in (envoy.LISTENERS, envoy.CLUSTERS):
            self._write(name, [])
        config = json.dumps(envoy.bootstrap(self._folder))
        with (self._folder / "envoy.log").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                str(self._program),
                *("--config-yaml", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"),
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_end_with_the_server,
            )

    async def _stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _end_with_the_server() -> None:
    """Ask the kernel for SIGTERM when the server ends, even by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
