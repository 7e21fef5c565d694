"""The one node: its name, labels and address, and what every pod on it is given."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from local.cluster.access import Access
from local.cluster.addresses import Addresses
from local.cluster.eventlog import EventLog
from local.cluster.images import Image
from local.cluster.resources import NODES, PODS, SERVICE_ACCOUNTS, Object
from local.cluster.store import Store, now

NAME = "slipway-local"
PODS_AT_MOST = 250
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
VERSION = "v1.32.4"


class Node:
    """What pod workers share."""

    name = NAME

    def __init__(
        self, store: Store, state: Path, addresses: Addresses, images: Mapping[str, Image], access: Access
    ) -> None:
        self.state, self.images = state, images
        self.events = EventLog(store, "kubelet")
        self._store, self._addresses, self._access = store, addresses, access
        architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
        self.labels = {
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": architecture,
            "kubernetes.io/hostname": NAME,
        }

    @property
    def address(self) -> str:
        """The node's own address."""
        return self._addresses.node

    def register(self) -> None:
        """Write the Node object."""
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        capacity = {"cpu": str(os.cpu_count()), "memory": f"{memory_bytes // 1024}Ki", "pods": str(PODS_AT_MOST)}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the server runs"}
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [ready | {"lastHeartbeatTime": now(), "lastTransitionTime": now()}],
            "addresses": [{"type": "InternalIP", "address": self.address}, {"type": "Hostname", "address": NAME}],
            "nodeInfo": {
                "kubeletVersion": VERSION,
                "containerRuntimeVersion": "process://1",
                "operatingSystem": self.labels["kubernetes.io/os"],
                "architecture": self.labels["kubernetes.io/arch"],
                "kernelVersion": platform.release(),
                "kubeProxyVersion": VERSION,
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
                "osImage": platform.platform(),
            },
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME, "labels": self.labels}, "spec": {}}
        if self._store.get(NODES, "", NAME) is None:
            self._store.create(NODES, node | {"status": status})
        else:
            self._store.modify(NODES, "", NAME, lambda item: item.update(status=status))

    def unmatched(self, selector: Mapping[str, str]) -> str:
        """The part of a nodeSelector that this node does not have; empty when it fits."""
        return ", ".join(f"{key}={value}" for key, value in selector.items() if self.labels.get(key) != value)

    def pod_address(self) -> str:
        """A free address."""
        taken = {pod["status"].get("podIP") for pod in self._store.all(PODS)}
        return self._addresses.pod(taken.__contains__)

    def mounts_token(self, pod: Object) -> bool:
        """Whether the pod's processes may speak with this API."""
        asked = pod["spec"].get("automountServiceAccountToken")
        if asked is None:
            name = pod["spec"].get("serviceAccountName", "default")
            account = self._store.get(SERVICE_ACCOUNTS, pod["metadata"]["namespace"], name) or {}
            asked = account.get("automountServiceAccountToken")
        return asked is not False

    def write_kubeconfig(self, file: Path, namespace: str) -> None:
        """Write what the KUBECONFIG of a pod names."""
        self._access.write(file, context="slipway-local", namespace=namespace)
