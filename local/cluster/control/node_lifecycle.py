"""Takes the node away and brings it back, and marks it and its pods not ready while its kubelet is silent.

Containers go on meanwhile, as on a machine whose kubelet has stopped or whose network is cut.
"""

import asyncio
from typing import Any

from ..node.kubelet import Kubelet
from ..node.pod_status import FINAL_PHASES
from ..objects.eventlog import EventLog
from ..objects.resources import NODES, PODS, Object
from ..objects.store import Store, key_of, now

GRACE_S = 50.0
"""The default of kube-controller-manager's --node-monitor-grace-period (Kubernetes 1.32)."""
UNREACHABLE = "node.kubernetes.io/unreachable"
SILENT = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
"""tryUpdateNodeHealth, pkg/controller/nodelifecycle/node_lifecycle_controller.go, Kubernetes 1.32."""


class NodeLifecycle:
    """The controller of this name, with a switch for the node. Pods are not evicted from a node that stays away."""

    def __init__(self, store: Store, kubelet: Kubelet, node: str, grace_s: float = GRACE_S) -> None:
        """The node counts as ready for `grace_s` seconds after its kubelet was last heard of."""
        self._store, self._kubelet, self._node, self._grace_s = store, kubelet, node, grace_s
        self._events = EventLog(store, "node-controller", node)
        self._silence: asyncio.Task[None] | None = None

    async def stop_node(self) -> None:
        """Stop the kubelet: no pod starts, ends or reports until it is started again."""
        await self._kubelet.close()
        if self._silence is None:
            self._silence = asyncio.create_task(self._mark_later())

    async def start_node(self) -> None:
        """Start the kubelet, which takes its pods over and reports them and the node."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
            self._kubelet.start()

    async def close(self) -> None:
        """Stop waiting for the kubelet."""
        if self._silence is not None:
            self._silence.cancel()

    async def _mark_later(self) -> None:
        await asyncio.sleep(self._grace_s)
        node = self._store.modify(NODES, "", self._node, _mark_node)
        if node is not None:
            self._events.normal(node, "NodeNotReady", f"Node {self._node} status is now: NodeNotReady")
        for pod in self._store.all(PODS):
            if pod["spec"].get("nodeName") == self._node and pod["status"].get("phase") not in FINAL_PHASES:
                self._store.modify(PODS, *key_of(pod), _mark_pod)
                self._events.warning(pod, "NodeNotReady", "Node is not ready")


def _mark_node(node: Object) -> None:
    node["status"]["conditions"] = [_changed(condition, SILENT) for condition in node["status"]["conditions"]]
    effects = ("NoSchedule", "NoExecute")
    node["spec"]["taints"] = [{"key": UNREACHABLE, "effect": effect, "timeAdded": now()} for effect in effects]


def _mark_pod(pod: Object) -> None:
    """MarkPodsNotReady, pkg/controller/util/node/controller_utils.go: the condition Ready alone."""
    conditions = pod["status"].get("conditions") or []
    pod["status"]["conditions"] = [
        _changed(each, {"status": "False"}) if each["type"] == "Ready" and each["status"] == "True" else each
        for each in conditions
    ]


def _changed(condition: Object, change: dict[str, Any]) -> Object:
    return condition | change | {"lastTransitionTime": now()}
