"""The one node: its name, labels and address, and the credentials of its pods."""

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..access.access import Access, write_private
from ..access.tokens import TokenIssuer
from ..addresses import Addresses
from ..objects.eventlog import EventLog
from ..objects.quantities import pod_amounts
from ..objects.resources import CLAIMS, NODES, PODS, SERVICE_ACCOUNTS, Object
from ..objects.store import Store, now
from . import confinement
from .attempts import Shims
from .images import ImageTable
from .pod_status import FINAL_PHASES
from .pulls import PulledImages
from .restarts import NOTICE_S

PODS_AT_MOST = 250
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
VERSION = "v1.32.4"
Credentials = tuple[Access, TokenIssuer]


@dataclass(frozen=True)
class NodeSettings:
    """What a cluster's user decides about its node."""

    notice_s: float = NOTICE_S
    """Seconds between looks at containers: how late the end of one is reported."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """Extended resources of the node by name. They are counted, and give a pod nothing but its place."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels besides those of its own."""


class Node:
    """The node, shared by all pod workers."""

    def __init__(
        self,
        name: str,
        store: Store,
        state: Path,
        addresses: Addresses,
        images: ImageTable,
        credentials: Credentials,
        programs: Iterable[Path],
        settings: NodeSettings,
    ) -> None:
        """`programs` are the folders with the images' programs."""
        self.notice_s, self._devices = settings.notice_s, settings.devices
        self.name, self.state, self.images = name, state, images
        self._programs = (state, *programs)
        self.confinement = confinement.available(state / "confinement")
        self.pulled = PulledImages()
        self.shims = Shims()
        self.events = EventLog(store, "kubelet", name)
        self._store, self._addresses, self._credentials = store, addresses, credentials
        architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
        self.labels = {
            **settings.labels,
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": architecture,
            "kubernetes.io/hostname": name,
        }

    @property
    def kept(self) -> tuple[Path, ...]:
        """Folders with programs of images, which every container sees even inside a folder that a mount covers."""
        folders = {Path(part) for image in self.images.values() for part in image.path.split(":")}
        return (*self._programs, *sorted(folder for folder in folders if folder.is_dir()))

    @property
    def address(self) -> str:
        """The node's own address."""
        return self._addresses.node

    def register(self) -> None:
        """Write the Node object."""
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        capacity = {
            "cpu": str(os.cpu_count()),
            "memory": f"{memory_bytes // 1024}Ki",
            "pods": str(PODS_AT_MOST),
            **{name: str(count) for name, count in self._devices.items()},
        }
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the server runs"}
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [ready | {"lastHeartbeatTime": now(), "lastTransitionTime": now()}],
            "addresses": [{"type": "InternalIP", "address": self.address}, {"type": "Hostname", "address": self.name}],
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
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": self.labels}, "spec": {}}
        if self._store.get(NODES, "", self.name) is None:
            self._store.create(NODES, node | {"status": status})
        else:
            self._store.modify(NODES, "", self.name, lambda item: item.update(status=status, spec={}))

    def unfit(self, pod: Object) -> str:
        """Why the scheduler does not place the pod on this node, in its own words; empty if it does."""
        node = self._store.get(NODES, "", self.name) or {"metadata": {}}
        labels = {**(node["metadata"].get("labels") or {}), **self.labels}
        selector = pod["spec"].get("nodeSelector") or {}
        if any(labels.get(key) != value for key, value in selector.items()):
            return "1 node(s) didn't match Pod's node affinity/selector"
        claims = (volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes") or [])
        for claim in (str(each["claimName"]) for each in claims if each):
            if self._store.get(CLAIMS, pod["metadata"]["namespace"], claim) is None:
                return f'persistentvolumeclaim "{claim}" not found'
        return ", ".join(f"1 Insufficient {name}" for name, count in _devices(pod).items() if count > self._free(name))

    def _free(self, device: str) -> int:
        """How many of an extended resource no pod of this node has."""
        placed = (pod for pod in self._store.all(PODS) if pod["spec"].get("nodeName"))
        running = (pod for pod in placed if pod["status"].get("phase") not in FINAL_PHASES)
        return self._devices.get(device, 0) - sum(_devices(pod).get(device, 0) for pod in running)

    def pod_address(self) -> str:
        """A free address."""
        taken = {pod["status"].get("podIP") for pod in self._store.all(PODS)}
        return self._addresses.pod(taken.__contains__)

    def mounts_token(self, pod: Object) -> bool:
        """Whether the pod gets a token for this API."""
        automount = pod["spec"].get("automountServiceAccountToken")
        if automount is None:
            name = pod["spec"].get("serviceAccountName", "default")
            account = self._store.get(SERVICE_ACCOUNTS, pod["metadata"]["namespace"], name) or {}
            automount = account.get("automountServiceAccountToken")
        return automount is not False

    def write_credentials(self, pod: Object, folder: Path) -> None:
        """Write the token of the pod's service account, as Kubernetes mounts it, and a kubeconfig that uses it.

        Raises:
            ApiError: 404, the service account is gone.
        """
        access, tokens = self._credentials
        namespace = pod["metadata"]["namespace"]
        write_private(folder / "token", tokens.for_pod(pod))
        write_private(folder / "ca.crt", access.certificate)
        write_private(folder / "namespace", namespace)
        access.write(folder / "kubeconfig", context=self.name, namespace=namespace, user={"tokenFile": "token"})


def _devices(pod: Object) -> dict[str, int]:
    """How many of each extended resource a pod asks for."""
    return {name: int(amount) for name, (amount, _) in pod_amounts(pod["spec"], "requests").items() if "/" in name}
