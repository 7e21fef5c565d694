"""Brings one pod from its creation to its end.

The worker decides from what the pod's folder and the store say, never from memory of its own alone. So a restarted
server goes on where the killed one stood.
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable
from datetime import datetime

from local.cluster.containers import RETRY_S, Containers
from local.cluster.environment import ConfigurationError
from local.cluster.node import Node
from local.cluster.pod_status import FINAL_PHASES, Seen, compute, condition
from local.cluster.resources import PODS, Object
from local.cluster.store import Store


class PodWorker:
    """One pod on the node. `run` ends when the pod is gone."""

    def __init__(self, store: Store, node: Node, pod: Object) -> None:
        self._store, self._node = store, node
        self._namespace, self._name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._uid = pod["metadata"]["uid"]
        self._wake = asyncio.Event()
        self._containers = Containers(store, node, pod, self.wake)
        self._deadline: tuple[float | None, float] = (None, 0.0)

    def wake(self) -> None:
        """Something about the pod changed."""
        self._wake.set()

    async def run(self) -> None:
        """Work until the pod is gone; cancelled, it leaves the containers running."""
        try:
            while True:
                self._wake.clear()
                pod = self._stored()
                if pod is None:
                    break
                delay_s = await self._step(pod)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), delay_s)
        finally:
            self._containers.close()
        await self._containers.stop_all(lambda: 0.0)
        await asyncio.to_thread(shutil.rmtree, self._containers.folder, ignore_errors=True)

    async def _step(self, pod: Object) -> float | None:
        """Do what can be done now; seconds until something is due, None when only a change can matter."""
        if "deletionTimestamp" in pod["metadata"]:
            await self._delete(pod)
            return None
        if pod["status"].get("phase") in FINAL_PHASES:
            self._containers.close_probes()
            await asyncio.to_thread(shutil.rmtree, self._containers.folder / "volumes", ignore_errors=True)
            return None
        if not self._schedule(pod):
            return None
        left_s = self._time_left_s(pod)
        if left_s is not None and left_s <= 0:
            await self._end_at_deadline(pod)
            return 0
        pod = self._begin(self._stored() or pod)
        try:
            self._containers.prepare(pod)
        except ConfigurationError as error:
            self._node.events.warning(pod, "FailedMount", f"MountVolume.SetUp failed: {error}")
            return RETRY_S
        due_s = await self._advance(pod)
        delays = [delay for delay in (due_s, self._time_left_s(pod)) if delay is not None]
        return min(delays, default=None)

    def _schedule(self, pod: Object) -> bool:
        if pod["spec"].get("nodeName"):
            return True
        unmatched = self._node.unmatched(pod["spec"].get("nodeSelector") or {})
        if unmatched:
            message = f"0/1 nodes are available: 1 node(s) didn't match Pod's node selector ({unmatched})."
            old = pod["status"].get("conditions") or []
            entry = condition(old, "PodScheduled", holds=False, reason="Unschedulable", message=message)
            self._change(lambda item: item["status"].update(conditions=[entry]))
            self._node.events.warning(pod, "FailedScheduling", message)
            return False
        self._change(lambda item: item["spec"].update(nodeName=self._node.name))
        text = f"Successfully assigned {self._namespace}/{self._name} to {self._node.name}"
        self._node.events.normal(pod, "Scheduled", text)
        return True

    def _begin(self, pod: Object) -> Object:
        """Give the pod its address and folder."""
        if not pod["status"].get("podIP"):
            address = self._node.pod_address()
            self._change(lambda item: item["status"].update(podIP=address, podIPs=[{"ip": address}]))
            self._publish(pod, [], [Seen(container) for container in pod["spec"]["containers"]])
        return self._stored() or pod

    async def _advance(self, pod: Object) -> float | None:
        inits: list[Seen] = []
        initial = pod["spec"].get("initContainers") or []
        mains = [Seen(container) for container in pod["spec"]["containers"]]
        for index, container in enumerate(initial):
            seen, due_s = await self._containers.keep(pod, container, initial=True)
            inits.append(seen)
            if not seen.done or seen.failed:
                rest = [Seen(other) for other in initial[index + 1 :]]
                self._publish(pod, [*inits, *rest], mains)
                return due_s
        found = [await self._containers.keep(pod, container, initial=False) for container in pod["spec"]["containers"]]
        self._publish(pod, inits, [seen for seen, _ in found])
        return min((due_s for _, due_s in found if due_s is not None), default=None)

    def _publish(self, pod: Object, inits: list[Seen], mains: list[Seen], **more: str) -> None:
        stored = self._stored()
        if stored is None:
            return
        address = stored["status"].get("podIP", "")
        if not inits and (initial := pod["spec"].get("initContainers")):
            inits = [Seen(container) for container in initial]
        status = compute(stored, inits, mains, address, self._node.address) | more
        self._change(lambda item: item.update(status=status))

    async def _delete(self, pod: Object) -> None:
        self._containers.close_probes()
        if pod["status"].get("phase") not in FINAL_PHASES and pod["status"].get("podIP"):
            await self._containers.stop_all(self._deletion_deadline, pod)
            self._publish(
                pod, self._containers.observed(pod, "initContainers"), self._containers.observed(pod, "containers")
            )
        stored = self._stored()
        if stored is not None and not stored["metadata"].get("finalizers"):
            self._store.remove(PODS, self._namespace, self._name)
            self.wake()

    def _deletion_deadline(self) -> float:
        """When the processes are killed, as the epoch has it; a second, shorter DELETE moves it."""
        stored = self._stored()
        if stored is None:
            return 0.0
        grace_s = stored["metadata"].get("deletionGracePeriodSeconds", 0)
        if self._deadline[0] != grace_s:
            due = datetime.fromisoformat(stored["metadata"]["deletionTimestamp"]).timestamp()
            self._deadline = (grace_s, min(time.time() + grace_s, due + 1))
        return self._deadline[1]

    async def _end_at_deadline(self, pod: Object) -> None:
        message = "Pod was active on the node longer than the specified deadline"
        self._node.events.warning(pod, "DeadlineExceeded", message)
        self._containers.close_probes()
        deadline = time.time() + pod["spec"]["terminationGracePeriodSeconds"]
        await self._containers.stop_all(lambda: deadline, pod)
        inits, mains = self._containers.observed(pod, "initContainers"), self._containers.observed(pod, "containers")
        self._publish(pod, inits, mains, phase="Failed", reason="DeadlineExceeded", message=message)

    def _time_left_s(self, pod: Object) -> float | None:
        limit_s, start = pod["spec"].get("activeDeadlineSeconds"), pod["status"].get("startTime")
        if limit_s is None or start is None:
            return None
        return datetime.fromisoformat(start).timestamp() + float(limit_s) - time.time()

    def _stored(self) -> Object | None:
        pod = self._store.get(PODS, self._namespace, self._name)
        return pod if pod is not None and pod["metadata"]["uid"] == self._uid else None

    def _change(self, change: Callable[[Object], None]) -> None:
        if self._stored() is not None:
            self._store.modify(PODS, self._namespace, self._name, change)
