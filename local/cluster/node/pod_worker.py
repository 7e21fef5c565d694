"""Takes one pod from its creation to its end.

The worker decides from the pod's folder and the store, never from its own memory alone, so a restarted server
continues where the killed one stopped.
"""

import asyncio
import contextlib
import functools
import shutil
import time
from collections.abc import Callable
from datetime import datetime

from ..objects.resources import PODS, Object
from ..objects.store import Store
from . import attempts, eviction
from .containers import Containers
from .environment import MountError
from .node import Node
from .pod_status import FINAL_PHASES, Seen, compute, condition, has_initialized

MOUNT_RETRY_S, MOUNT_RETRY_MAX_S = 0.5, 122.0  # the kubelet's
SCHEDULING_RETRY_S = 1.0
FOLLOW_S = 5.0
"""Between two looks at a running pod's ConfigMaps and Secrets; the kubelet takes about a minute."""


class PodWorker:
    """Handles one pod on the node. `run` ends when the pod is gone."""

    def __init__(self, store: Store, node: Node, pod: Object, eviction_grace_s: float) -> None:
        self._store, self._node, self._eviction_grace_s = store, node, eviction_grace_s
        self._namespace, self._name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._uid = pod["metadata"]["uid"]
        self._wake = asyncio.Event()
        self._containers = Containers(store, node, pod, self.wake)
        self._mount_retry_s = MOUNT_RETRY_S
        self._deadline: tuple[float | None, float] = (None, 0.0)
        self._next_look_s = self._next_follow_s = 0.0

    def wake(self) -> None:
        """Wake the worker, because something about the pod changed."""
        self._wake.set()

    async def run(self) -> None:
        """Work until the pod is gone. If cancelled, leave the containers running."""
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
        """Do what can be done now. Returns seconds until more is due; None if only a change can lead to more."""
        if "deletionTimestamp" in pod["metadata"]:
            await self._delete(pod)
            return None
        if pod["status"].get("phase") in FINAL_PHASES:
            await self._end_sidecars(pod)
            await asyncio.to_thread(shutil.rmtree, self._containers.folder / "volumes", ignore_errors=True)
            return None
        if not self._schedule(pod):
            return SCHEDULING_RETRY_S
        left_s = self._time_left_s(pod)
        if left_s is not None and left_s <= 0:
            await self._end_at_deadline(pod)
            return 0
        pod = self._begin(self._stored() or pod)
        try:
            self._containers.prepare(pod)
        except MountError as error:
            for problem in error.problems:
                self._node.events.warning(pod, "FailedMount", problem)
            self._mount_retry_s = min(2 * self._mount_retry_s, MOUNT_RETRY_MAX_S)
            return self._mount_retry_s / 2
        due_s = await self._advance(self._give_address(pod))
        look_s = await self._keep_within_limits(pod)
        delays = [each for each in (due_s, look_s, self._follow(), self._time_left_s(pod)) if each is not None]
        return min(delays, default=None)

    def _follow(self) -> float | None:
        """Show the pod what its ConfigMaps and Secrets hold now. Returns seconds until the next look."""
        volumes = self._containers.volumes
        if not volumes.follows:
            return None
        if (left_s := self._next_follow_s - time.monotonic()) > 0:
            return left_s
        self._next_follow_s = time.monotonic() + FOLLOW_S
        with contextlib.suppress(MountError):  # what is missing now stays as it was
            volumes.prepare()
        return FOLLOW_S

    async def _keep_within_limits(self, pod: Object) -> float | None:
        """Evict the pod if it uses too much storage. Returns seconds until the next check; None without limits."""
        if not eviction.limited(pod):
            return None
        left_s = self._next_look_s - time.monotonic()
        if left_s > 0:
            return left_s
        self._next_look_s = time.monotonic() + eviction.LOOK_S
        log_bytes = functools.partial(attempts.log_bytes, self._containers.folder)
        over = await asyncio.to_thread(eviction.cause, pod, self._containers.volumes.used_bytes, log_bytes)
        stored = self._stored()
        if over is None or stored is None or stored["status"].get("phase") in FINAL_PHASES:
            return eviction.LOOK_S
        await self._end(pod, eviction.REASON, over, time.time() + self._eviction_grace_s)
        return 0

    def _schedule(self, pod: Object) -> bool:
        if pod["spec"].get("nodeName"):
            return True
        if unfit := self._node.unfit(pod):
            message = (
                f"0/1 nodes are available: {unfit}. "
                "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
            )
            old = pod["status"].get("conditions") or []
            if any(entry.get("message") == message for entry in old):
                return False
            entry = condition(old, "PodScheduled", holds=False, reason="Unschedulable", message=message)
            self._change(lambda item: item["status"].update(conditions=[entry]))
            self._node.events.warning(pod, "FailedScheduling", message)
            return False
        self._change(lambda item: item["spec"].update(nodeName=self._node.name))
        text = f"Successfully assigned {self._namespace}/{self._name} to {self._node.name}"
        self._node.events.normal(pod, "Scheduled", text)
        return True

    def _begin(self, pod: Object) -> Object:
        """Record in the status that the node has accepted the pod."""
        if not pod["status"].get("startTime"):
            self._publish(pod, [], [Seen(container) for container in pod["spec"]["containers"]])
        return self._stored() or pod

    def _give_address(self, pod: Object) -> Object:
        """Assign an address; as in Kubernetes, only once the volumes are mounted."""
        if not pod["status"].get("podIP"):
            address = self._node.pod_address()
            self._change(lambda item: item["status"].update(podIP=address, podIPs=[{"ip": address}]))
            self._publish(pod, [], [Seen(container) for container in pod["spec"]["containers"]])
        return self._stored() or pod

    async def _advance(self, pod: Object) -> float | None:
        inits: list[Seen] = []
        dues: list[float | None] = []
        initial = pod["spec"].get("initContainers") or []
        mains = [Seen(container) for container in pod["spec"]["containers"]]
        begun = any(seen.attempt for seen in self._containers.observed(pod, "containers"))
        for index, container in enumerate(initial):
            seen, due_s = await self._containers.keep(pod, container, initial=True)
            inits.append(seen)
            dues.append(due_s)
            # a sidecar that ends later is restarted on its own
            if not has_initialized(seen) and not (begun and seen.sidecar):
                rest = self._containers.observed(pod, "initContainers")[index + 1 :]
                self._publish(pod, [*inits, *rest], mains)
                return due_s
        observations = [
            await self._containers.keep(pod, container, initial=False) for container in pod["spec"]["containers"]
        ]
        self._publish(pod, inits, [seen for seen, _ in observations])
        dues += [due_s for _, due_s in observations]
        return min((due_s for due_s in dues if due_s is not None), default=None)

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
        if pod["status"].get("phase") not in FINAL_PHASES and pod["status"].get("podIP"):
            self._containers.end_liveness_probes()
            readiness = asyncio.create_task(self._publish_changes(pod))
            try:
                await self._containers.stop_all(self._deletion_deadline, pod)
            finally:
                readiness.cancel()
            self._publish_observed(pod)
        self._containers.close_probes()
        stored = self._stored()
        if stored is not None and not stored["metadata"].get("finalizers"):
            self._store.remove(PODS, self._namespace, self._name)
            self.wake()

    async def _publish_changes(self, pod: Object) -> None:
        """Keep publishing readiness while the pod terminates: if no other pod is ready, it still gets requests."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._publish_observed(pod)

    def _publish_observed(self, pod: Object, **more: str) -> None:
        inits, mains = (self._containers.observed(pod, kind) for kind in ("initContainers", "containers"))
        self._publish(pod, inits, mains, **more)

    def _deletion_deadline(self) -> float:
        """When the processes are killed, in epoch seconds; a second DELETE with a shorter grace period moves it."""
        stored = self._stored()
        if stored is None:
            return 0.0
        grace_s = stored["metadata"].get("deletionGracePeriodSeconds", 0)
        if self._deadline[0] != grace_s:
            due = datetime.fromisoformat(stored["metadata"]["deletionTimestamp"]).timestamp()
            self._deadline = (grace_s, min(time.time() + grace_s, due + 1))
        return self._deadline[1]

    async def _end_sidecars(self, pod: Object) -> None:
        """Stop the sidecars, which are all that still runs once the main containers have ended."""
        self._containers.close_probes()
        deadline = time.time() + pod["spec"]["terminationGracePeriodSeconds"]
        await self._containers.stop_all(lambda: deadline, pod)

    async def _end_at_deadline(self, pod: Object) -> None:
        message = "Pod was active on the node longer than the specified deadline"
        await self._end(pod, "DeadlineExceeded", message, time.time() + pod["spec"]["terminationGracePeriodSeconds"])

    async def _end(self, pod: Object, reason: str, message: str, deadline: float) -> None:
        """End the pod as failed, with the reason and message for its status."""
        self._node.events.warning(pod, reason, message)
        self._containers.close_probes()
        await self._containers.stop_all(lambda: deadline, pod)
        if reason == eviction.REASON:
            # the kubelet removes an evicted pod's containers, and their logs with them, before it reads their messages
            await asyncio.to_thread(attempts.remove_logs, self._containers.folder)
        self._publish_observed(pod, phase="Failed", reason=reason, message=message)

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
