"""Starts a worker for each pod, and ends every container when the stack goes down."""

import asyncio
import logging
import shutil

from ..objects.resources import NODES, PODS, Object
from ..objects.store import Change, Store
from .attempts import end_containers
from .node import Node
from .pod_worker import PodWorker

CRASH_PAUSE_S = 5.0
log = logging.getLogger(__name__)


class Kubelet:
    """Runs the pods in the store."""

    def __init__(self, store: Store, node: Node, eviction_grace_s: float) -> None:
        self._store, self._node, self._eviction_grace_s = store, node, eviction_grace_s
        self._workers: dict[str, tuple[PodWorker, asyncio.Task[None]]] = {}
        self._runs = False
        store.subscribe(self._changed)

    def start(self) -> None:
        """Take over the state folder's pods, and delete the folders of pods that no longer exist."""
        self._runs = True
        self._node.register()
        pods = self._store.all(PODS)
        known = {pod["metadata"]["uid"] for pod in pods}
        for folder in (self._node.state / "pods").glob("*"):
            if folder.name not in known:
                end_containers(folder, grace_s=0)
                shutil.rmtree(folder, ignore_errors=True)
        for pod in pods:
            self._work_on(pod)

    async def close(self) -> None:
        """Stop the workers; containers keep running, and the next start takes them over."""
        self._runs = False
        tasks = [task for _, task in self._workers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _changed(self, change: Change) -> None:
        if change.resource is NODES:  # its labels may let a pending pod in
            for worker, _ in self._workers.values():
                worker.wake()
        if change.resource is not PODS:
            return
        uid = change.object["metadata"]["uid"]
        if uid in self._workers:
            self._workers[uid][0].wake()
        elif self._runs and change.new is not None:
            self._work_on(change.new)

    def _work_on(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        worker = PodWorker(self._store, self._node, pod, self._eviction_grace_s)
        task = asyncio.create_task(self._run(worker, pod))
        self._workers[uid] = (worker, task)
        task.add_done_callback(lambda _: self._workers.pop(uid, None))

    async def _run(self, worker: PodWorker, pod: Object) -> None:
        while True:
            try:
                await worker.run()
            except Exception as error:
                # One pod that cannot be handled must not stop the others.
                log.exception("pod %s/%s", pod["metadata"]["namespace"], pod["metadata"]["name"])
                self._node.events.warning(pod, "FailedSync", f"Error syncing pod: {type(error).__name__}: {error}")
                await asyncio.sleep(CRASH_PAUSE_S)
            else:
                return
