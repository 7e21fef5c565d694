"""The API and the controllers of the embedded cluster in this process, with a node that runs nothing.

A pod is ready once it exists and gone once it is deleted, as with KWOK's nodes. So the real client, real objects and real
endpoints are tried thousands of times while no process starts and nothing waits.
"""

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web
from kubernetes import client

from local.cluster.access import certificate
from local.cluster.access.access import Access
from local.cluster.access.authorization import Authorizer, add_default_roles
from local.cluster.access.gate import Gate
from local.cluster.access.tokens import TokenIssuer
from local.cluster.addresses import Addresses
from local.cluster.api.api import Api
from local.cluster.api.objects import Objects
from local.cluster.control.garbage import Deletion
from local.cluster.control.workloads import Workloads
from local.cluster.network.endpoints import SERVICE_LABEL, EndpointWriter
from local.cluster.node.pod_status import condition
from local.cluster.node.podlogs import PodLogs
from local.cluster.objects.resources import ENDPOINT_SLICES, PODS
from local.cluster.objects.store import Store
from tests.fakes.clock import ManualClock

NODE = "hollow"
QUIET_TURNS = 5
"""Turns of the event loop without a change, after which no controller has anything left to do."""


@dataclass
class Outage:
    """The API server is away from a request on, for some requests."""

    at: int
    """Number of the request, from 0."""
    requests: int
    handled: bool = False
    """Whether the first of them is carried out and only its answer is lost."""
    starting: int = 0
    """Requests that it refuses when it is back, because it has not read its roles yet."""


@dataclass
class NodeOutage:
    """The node is away from a request on, for some requests, and the API server answers."""

    at: int
    requests: int


class HollowCluster:
    """The cluster, and the outages of its API server."""

    def __init__(self, folder):
        self._folder, self._loop = folder, asyncio.new_event_loop()
        self._outage, self._count = None, 0
        self._node_is_away = False
        self.met, self.dark = 0, []
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._on_loop(self._start())

    def close(self):
        self._on_loop(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def client(self):
        """A client of its own, as each pod has."""
        settings = client.Configuration(host=f"https://127.0.0.1:{self._port}")
        settings.ssl_ca_cert = str(self._folder / "server.crt")
        settings.api_key = {"authorization": f"Bearer {self._token}"}
        return client.ApiClient(settings)

    @contextmanager
    def away(self, outage):
        """Count the requests of a block, and let the API server or the node be away during some; None: during none."""
        self._outage, self._count = outage, 0
        try:
            yield
        finally:
            self._outage = None
            self._on_loop(self._bring_node_back())

    def settle(self):
        """Let the controllers finish what they have to do."""
        self._on_loop(self._settled())

    def _on_loop(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self):
        self._folder.mkdir(exist_ok=True)
        self._store, self._addresses = Store(self._folder / "objects.sqlite"), Addresses(self._folder)
        access, deletion = Access.of(self._folder), Deletion(self._store, self._folder / "claims")
        self._token, tokens = access.token, TokenIssuer(self._store, self._folder)
        self._objects = Objects(self._store, deletion, self._addresses, NODE)
        EndpointWriter(self._store).start()
        self._store.subscribe(self._changed)
        workloads = Workloads(self._store, self._objects.create_pod, deletion.delete, NODE)
        self._objects.add_system_namespaces()
        add_default_roles(self._store)
        gate = Gate(access, tokens, Authorizer(self._store))
        application = Api(self._objects, PodLogs(self._store, self._folder), gate, {}, hold_s=0).application()
        application.middlewares.insert(0, self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        _, tls = certificate.ensure(self._folder, NODE)
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls).start()
        self._port = self._runner.addresses[0][1]
        self._controllers = asyncio.create_task(workloads.run())

    async def _stop(self):
        self._controllers.cancel()
        await asyncio.gather(self._controllers, return_exceptions=True)
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()  # else TLS would wait for its clients
        await self._settled()
        await self._runner.cleanup()
        self._store.close()
        self._addresses.close()

    @web.middleware
    async def _answer(self, request, handler):
        await self._settled()
        number, self._count, outage = self._count, self._count + 1, self._outage
        if isinstance(outage, NodeOutage):
            return await self._answer_without_node(outage, number, request, handler)
        if outage is None or not 0 <= number - outage.at < outage.requests + outage.starting:
            return await handler(request)
        self.met += 1
        if number - outage.at >= outage.requests:
            return _refused(request)
        if outage.handled and number == outage.at:
            await handler(request)
        request.transport.abort()
        return web.Response()

    async def _answer_without_node(self, outage, number, request, handler):
        if 0 <= number - outage.at < outage.requests:
            self.met += 1
            if not self._node_is_away:
                self._node_is_away = True
                self._mark_pods(ready=False)
        else:
            await self._bring_node_back()
        return await handler(request)

    async def _bring_node_back(self):
        if self._node_is_away:
            self._node_is_away = False
            self._mark_pods(ready=True)
            for pod in self._store.all(PODS):
                self._keep_pod(pod)
            await self._settled()

    def _mark_pods(self, *, ready):
        """Do what the node lifecycle controller does to the pods of a node that does not answer, and its kubelet undoes."""
        for pod in self._store.all(PODS):
            if pod["spec"].get("nodeName"):
                key = pod["metadata"]["namespace"], pod["metadata"]["name"]
                self._store.modify(PODS, *key, lambda item: item["status"].update(conditions=_conditions(ready=ready)))

    async def _settled(self):
        version, quiet = self._store.version, 0
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._store.version == version else 0
            version = self._store.version

    def _changed(self, change):
        if change.resource is PODS and change.new is not None:
            self._loop.call_soon(self._keep_pod, change.new)
        if self._node_is_away:
            return
        if change.resource is ENDPOINT_SLICES and _is_ready(change.old) and change.new and not _is_ready(change.new):
            self.dark.append(change.new["metadata"]["labels"][SERVICE_LABEL])

    def _keep_pod(self, pod):
        """Do what a kubelet does, without containers."""
        key = pod["metadata"]["namespace"], pod["metadata"]["name"]
        stored = self._store.get(PODS, *key)
        if self._node_is_away or stored is None or stored["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        if "deletionTimestamp" in stored["metadata"]:
            self._store.remove(PODS, *key)
        elif not stored["spec"].get("nodeName"):
            address = self._addresses.pod(lambda _: False)
            self._store.modify(PODS, *key, lambda item: _run(item, address))


class SettlingClock(ManualClock):
    """Moves only when somebody sleeps; the controllers of the cluster work meanwhile."""

    def __init__(self, cluster):
        super().__init__()
        self._cluster = cluster

    def sleep(self, seconds):
        super().sleep(seconds)
        self._cluster.settle()


def _refused(request):
    """As kube-apiserver 1.36 refuses before its authorizer has read any role."""
    said = f'leases "slipway-demo" is forbidden: User "system:admin" cannot {request.method.lower()} resource "leases"'
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
    return web.json_response(status | {"message": said}, status=403)


def _run(pod, address):
    pod["spec"]["nodeName"] = NODE
    conditions = _conditions(ready=True)
    pod["status"] |= {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}


def _conditions(*, ready):
    started = [condition([], kind, holds=True) for kind in ("PodScheduled", "Initialized", "ContainersReady")]
    return [*started, condition([], "Ready", holds=ready)]


def _is_ready(endpoint_slice):
    return endpoint_slice is not None and any(one["conditions"]["ready"] for one in endpoint_slice["endpoints"])
