"""A cluster in memory: objects, leases, and pods that come up at once unless a test says otherwise.

What it promises is what tests/fakes/kube/cluster_contract.py asks of it and of a cluster that speaks the real protocol.
"""

import json
import pickle
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from slipway.tasks.adapters.kube.kube_errors import MissingError, StaleError
from slipway.tasks.adapters.kube.lease_object import LeaseHolder
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.rollout.act.server_target import selected
from tests.fakes.clock import ManualClock
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import site as site_of
from tests.support.paths import REPOSITORY

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}


WORKLOADS = ("Deployment", "LeaderWorkerSet")
ROUTES = ("HTTPRoute", "GRPCRoute")
VERSIONED = (*ROUTES, "Secret")


class KilledError(BaseException):
    """The process ends here, as by SIGKILL: nothing on the way out may handle it."""


class MemoryCluster:
    """See tasks.adapters.kube.kube.Cluster. `changes` lists every change in order."""

    def __init__(self, clock, namespace="slipway-serving"):
        self.clock, self.namespace = clock, namespace
        self.own_clock = clock
        """The one that leases are judged by, whatever clock a client has."""
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.changes: list[str] = []
        self.failing: dict[str, Exception] = {}
        """What waiting for a Deployment raises, by its name."""
        self.unavailable: set[str] = set()
        """Deployments whose pods are not ready."""
        self.started: dict[str, int] = {}
        """Replicas that are ready, of workloads that were scaled and not waited for."""
        self.told: list[tuple[str, str, str]] = []
        """Workload, reason and run of each Event, in order."""
        self.gateway = True
        """Whether a Gateway accepts every route at once."""
        self.dies_at: tuple[int, str] | None = None
        """Number of the change, from 0, before or after which the process is killed."""

    def apply(self, objects):
        for item in objects:
            kind, name = item["kind"], item["metadata"]["name"]
            with self._change(f"apply {kind} {name}"):
                applied = json.loads(json.dumps(item))  # the API takes nothing else
                if kind in VERSIONED:
                    self._version(applied)
                if kind in ROUTES:
                    self._route(applied)
                if kind == "Service":
                    applied["spec"]["clusterIP"] = f"10.0.0.{len(name)}"
                self.objects[kind, name] = applied

    def create(self, item):
        if (item["kind"], item["metadata"]["name"]) in self.objects:
            raise StaleError(f"{item['kind']} {item['metadata']['name']} already exists")
        self.apply([item])

    def get(self, kind, name):
        item = self.objects.get((kind, name))
        return None if item is None else self._shown(kind, item)

    def find(self, kind, labels, *, namespace=None):
        items = [item for (a_kind, _), item in self.objects.items() if a_kind == kind]
        return [self._shown(kind, i) for i in items if labels.items() <= i["metadata"].get("labels", {}).items()]

    def delete(self, kind, name, *, version=None, namespace=None):
        if (kind, name) not in self.objects:
            return False
        with self._change(f"delete {kind} {name}"):
            del self.objects[kind, name]
        return True

    def scale(self, kind, name, replicas, annotations=None):
        """As a scaler or a roll-out does it; new pods are ready once they are waited for."""
        if (kind, name) not in self.objects:
            raise MissingError(f"{kind} {name} does not exist")
        with self._change(f"scale {kind} {name} to {replicas}"):
            before = self.objects[kind, name]["spec"]["replicas"]
            self.started[name] = min(self.started.get(name, before), replicas)
            self.objects[kind, name]["spec"]["replicas"] = replicas
            there = self.objects[kind, name]["metadata"].setdefault("annotations", {}) | (annotations or {})
            self.objects[kind, name]["metadata"]["annotations"] = {k: v for k, v in there.items() if v is not None}

    def tell(self, objects, event):
        name = next((name for kind, name in objects if (kind, name) in self.objects), None)
        if name is not None and (name, event.reason, event.run) not in self.told:
            self.told.append((name, event.reason, event.run))

    def service_address(self, name):
        service = self.get("Service", name)
        return None if service is None else ServiceAddress(service["spec"]["clusterIP"], dict(PORTS))

    def live_address(self, name):
        return self.service_address(name)

    def candidate_address(self, name):
        address = self.service_address(f"{name}-candidate")
        if address is None:
            raise InputError(f"Service {name}-candidate does not exist")
        return address

    def ready_pods(self, labels):
        return [
            f"{name}-0"
            for (kind, name), item in self.objects.items()
            if kind in WORKLOADS and name not in self.unavailable and labels.items() <= _pod_labels(item).items()
        ]

    def endpoints(self, service):
        item = self.objects.get(("Service", service))
        return set(self.ready_pods(item["spec"]["selector"])) if item else set()

    def wait_available(self, kind, name, ready_timeout_s, budget=None):
        self.clock.sleep(1.0)
        if (kind, name) not in self.objects:
            raise InputError(f"{kind} {name} does not exist")
        if name in self.failing:
            raise self.failing[name]
        self.unavailable.discard(name)
        self.started.pop(name, None)

    def lease_holder(self, name):
        lease = self.objects.get(("Lease", name))
        return lease["holder"] if lease else None

    def acquire_lease(self, name, holder, duration_s, *, dag_run="", ended_at=None):
        current, now = self.lease_holder(name), self.own_clock.now()
        mine = current is not None and current.is_same(holder, dag_run)
        if current and not mine and current.until > now and current.version != ended_at:
            return current
        since = current.since if mine else now
        with self._change(f"lease {name} to {holder}"):
            until, version = now + timedelta(seconds=duration_s), str(len(self.changes))
            kept = dag_run or (current.dag_run if mine else "")
            self.objects["Lease", name] = {
                "metadata": {"name": name},
                "holder": LeaseHolder(holder, since, until, kept, version),
            }
        return None

    def release_lease(self, name, holder, *, dag_run=""):
        lease = self.objects.get(("Lease", name))
        if lease and lease["holder"].is_same(holder, dag_run):
            self.delete("Lease", name)

    def _version(self, item):
        """Give it the next version, unless it was made from an old version."""
        metadata, there = item["metadata"], self.objects.get((item["kind"], item["metadata"]["name"]))
        version = there["metadata"]["resourceVersion"] if there else "0"
        if metadata.get("resourceVersion", version) != version:
            raise StaleError(f"{item['kind']} {metadata['name']} was changed by another client at the same time")
        metadata["resourceVersion"] = str(int(version) + 1)

    def _route(self, route):
        """A controller's answer to its newest version."""
        generation = route["metadata"]["generation"] = int(route["metadata"]["resourceVersion"])
        if self.gateway:
            kinds = ("Accepted", "ResolvedRefs")
            conditions = [{"type": kind, "status": "True", "observedGeneration": generation} for kind in kinds]
            route["status"] = {"parents": [{"conditions": conditions}]}

    def _shown(self, kind, item):
        """With the status of a workload whose pods all came up, or none of them."""
        shown = pickle.loads(pickle.dumps(item))  # noqa: S301 - from above; eight times as fast as JSON
        if kind in WORKLOADS:
            name, asked = item["metadata"]["name"], item["spec"]["replicas"]
            ready = 0 if name in self.unavailable else self.started.get(name, asked)
            counts = dict.fromkeys(("readyReplicas", "availableReplicas"), ready)
            shown["metadata"]["generation"] = 1
            replicas = {"replicas": item["spec"]["replicas"], "updatedReplicas": item["spec"]["replicas"]}
            shown["status"] = {"observedGeneration": 1, **replicas, **counts}
        return shown

    def _change(self, words):
        return _Change(self, words)


@dataclass
class _Change:
    cluster: MemoryCluster
    words: str

    def __enter__(self):
        self._die("before")
        self.cluster.changes.append(self.words)

    def __exit__(self, *_):
        self._die("after")

    def _die(self, moment):
        number = len(self.cluster.changes) - (moment == "after")
        if self.cluster.dies_at == (number, moment):
            self.cluster.dies_at = None
            raise KilledError(f"{moment} {self.words}")


@dataclass(frozen=True)
class ConnectedWorkspace(Workspace):
    """A workspace whose cluster is given, and what its pods serve if a test says so."""

    connection: Any = None
    served: Any = None

    def cluster(self):
        return self.connection

    def traffic(self, cluster, model, *ports):
        return self.served or super().traffic(cluster, model, *ports)


def in_memory(folder, *, store=None, cluster=None, **site_changes) -> ConnectedWorkspace:
    """A workspace with the project's own manifests over a cluster and a store in memory."""
    clock = ManualClock()
    cluster = cluster or MemoryCluster(clock)
    site = site_of(**site_changes)
    store = store or MemoryObjectStore()
    return ConnectedWorkspace(site, store, clock, folder, REPOSITORY, lambda: None, connection=cluster)


def _pod_labels(workload) -> dict[str, str]:
    """Of the pods that answer: of a LeaderWorkerSet, the leaders."""
    spec = workload["spec"]
    template = spec["template"] if "template" in spec else spec["leaderWorkerTemplate"]["leaderTemplate"]
    return template["metadata"]["labels"]


def standing(cluster) -> dict[str, Any]:
    """What a test compares: names of workloads, and which release each Service selects."""
    deployments = sorted(name for kind, name in cluster.objects if kind in WORKLOADS)
    services = {
        name: selected(item["spec"]["selector"], name.removesuffix("-candidate"))
        for (kind, name), item in cluster.objects.items()
        if kind == "Service"
    }
    leases = [name for kind, name in cluster.objects if kind == "Lease"]
    return {"deployments": deployments, "services": services, "leases": leases}
