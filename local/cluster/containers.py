"""The containers of one pod: start, restart, look, probe and stop.

What a container is stands in its folder; nothing here is lost with the server but the results of probes, which start
from what the stored status says.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from local.cluster import attempts, environment
from local.cluster.actions import ActionError, Runtime, act
from local.cluster.attempts import Attempt
from local.cluster.environment import ConfigurationError
from local.cluster.images import SYSTEM_PATH, Image
from local.cluster.node import Node
from local.cluster.pod_status import Seen
from local.cluster.probes import Probes
from local.cluster.quantities import quantity
from local.cluster.resources import Object, Resource
from local.cluster.store import Store
from local.cluster.volumes import Volumes

RETRY_S = 1.0
IMAGE_RETRY_S = 30.0
BACK_OFF_S = 10.0
BACK_OFF_MAX_S = 300.0
BACK_OFF_RESET_S = 600.0
STOP_LOOK_S = 0.25
TEMPORARY = "/tmp"  # noqa: S108 - the container's, never ours


class Containers:
    """What one pod's worker does to its containers; `wake` is called when one of them changed."""

    def __init__(self, store: Store, node: Node, pod: Object, wake: Callable[[], None]) -> None:
        self._store, self._node, self._wake = store, node, wake
        self._namespace, self._name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._uid = pod["metadata"]["uid"]
        self.folder: Path = node.state / "pods" / self._uid
        self._volumes = Volumes(pod, self.folder, node.state / "claims", self._lookup)
        self._probes: dict[str, tuple[Attempt, Probes]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._told: set[tuple[str, int, str]] = set()
        self._prepared = False

    def close(self) -> None:
        """Look no more; the containers go on."""
        self.close_probes()
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def prepare(self, pod: Object) -> None:
        """Make the pod's folder, volumes and kubeconfig.

        Raises:
            ConfigurationError: something that a volume needs is missing.
        """
        if not self._prepared:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._volumes.prepare()
            (self.folder / "home").mkdir(exist_ok=True)
            (self.folder / "tmp").mkdir(exist_ok=True)
            if self._node.mounts_token(pod):
                self._node.write_kubeconfig(self.folder / "kubeconfig", self._namespace)
            self._prepared = True

    async def keep(self, pod: Object, container: Object, *, initial: bool) -> tuple[Seen, float | None]:
        """Start, restart or look at one container."""
        attempt = attempts.latest(self._home(container))
        ended = attempt.ended() if attempt else None
        if attempt is not None and ended is None:
            return self._look(pod, container, attempt), None
        self._close_probe(container["name"])
        if ended is not None and attempt is not None:
            if not _restarts(pod["spec"]["restartPolicy"], ended["exitCode"], initial=initial):
                ready = initial and ended["exitCode"] == 0
                return Seen(container, attempt, ended, ready=ready), None
            wait_s = self._back_off_s(attempt, ended)
            if wait_s > 0:
                return self._backing_off(pod, container, attempt, ended, wait_s)
        return await self._start(pod, container, attempt, ended)

    def observed(self, pod: Object, kind: str) -> list[Seen]:
        """The containers as they are, with nobody left to start or restart one."""
        found = []
        for container in pod["spec"].get(kind) or []:
            attempt = attempts.latest(self._home(container))
            found.append(Seen(container, attempt, attempt.ended() if attempt else None))
        return found

    async def stop_all(self, deadline: Callable[[], float], pod: Object | None = None) -> None:
        """End every running container; `deadline` says when patience ends."""
        running = []
        containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])] if pod else []
        by_name = {container["name"]: container for container in containers}
        for folder in sorted(self.folder.glob("containers/*")):
            attempt = attempts.latest(folder)
            if attempt is not None and attempt.ended() is None:
                if pod is not None:
                    self._node.events.normal(pod, "Killing", f"Stopping container {folder.name}")
                running.append(self._stop(pod, by_name.get(folder.name, {}), attempt, deadline))
        await asyncio.gather(*running)

    def close_probes(self) -> None:
        """End every probe."""
        for name in list(self._probes):
            self._close_probe(name)

    def _backing_off(
        self, pod: Object, container: Object, attempt: Attempt, ended: Mapping[str, Any], wait_s: float
    ) -> tuple[Seen, float]:
        name = container["name"]
        text = f"Back-off restarting failed container {name} in pod {self._name}_{self._namespace}({self._uid})"
        if self._once(name, attempt.number, "BackOff"):
            self._node.events.warning(pod, "BackOff", text)
        waiting = {"reason": "CrashLoopBackOff", "message": text}
        return Seen(container, attempt, ended, waiting, restarts=True), wait_s

    async def _start(
        self, pod: Object, container: Object, last: Attempt | None, ended: Mapping[str, Any] | None
    ) -> tuple[Seen, float | None]:
        name = container["name"]
        image = self._node.images.get(container["image"])
        if image is None:
            return self._not_pulled(pod, container, last, ended)
        number = last.number + 1 if last else 0
        try:
            runtime = self._runtime(pod, container, Attempt(self._home(container) / str(number), number))
        except (ConfigurationError, ValueError) as error:
            self._node.events.warning(pod, "Failed", f"Error: {error}")
            waiting = {"reason": "CreateContainerConfigError", "message": str(error)}
            return Seen(container, last, ended, waiting, restarts=last is not None), RETRY_S
        words = [*(container.get("command") or image.command), *(container.get("args") or [])]
        self._node.events.normal(pod, "Pulled", f'Container image "{container["image"]}" already present on machine')
        limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        attempt = await attempts.start(
            self._home(container),
            runtime.command(words) or ["no command is specified"],
            runtime.environment,
            runtime.directory,
            int(quantity(limit)) if limit else None,
        )
        self._node.events.normal(pod, "Created", f"Created container: {name}")
        over = attempt.ended()
        if over is not None and over["reason"] == "StartError":
            self._node.events.warning(pod, "Failed", f"Error: {over['message']}")
        else:
            self._node.events.normal(pod, "Started", f"Started container {name}")
        if over is not None:
            self._wake()
        return self._look(pod, container, attempt), None

    def _not_pulled(
        self, pod: Object, container: Object, last: Attempt | None, ended: Mapping[str, Any] | None
    ) -> tuple[Seen, float]:
        image, number = container["image"], last.number if last else -1
        known = ", ".join(sorted(self._node.images))
        text = f'Failed to pull image "{image}": this cluster knows only {known} (local/images.yaml)'
        first = self._once(container["name"], number, "ErrImagePull")
        reason, delay_s = ("ErrImagePull", RETRY_S) if first else ("ImagePullBackOff", IMAGE_RETRY_S)
        if first:
            self._node.events.normal(pod, "Pulling", f'Pulling image "{image}"')
            self._node.events.warning(pod, "Failed", text)
        else:
            self._node.events.normal(pod, "BackOff", f'Back-off pulling image "{image}"')
        waiting = {"reason": reason, "message": text}
        return Seen(container, last, ended, waiting, restarts=last is not None), delay_s

    def _look(self, pod: Object, container: Object, attempt: Attempt) -> Seen:
        name = container["name"]
        watch = f"exit/{name}/{attempt.number}"
        if watch not in self._tasks:
            self._tasks[watch] = asyncio.create_task(self._wake_at_exit(watch, attempt))
        if name not in self._probes or self._probes[name][0] != attempt:
            self._close_probe(name)
            self._probes[name] = (attempt, self._probe(pod, container, attempt))
        probes = self._probes[name][1]
        return Seen(container, attempt, ready=probes.ready, started=probes.started)

    def _probe(self, pod: Object, container: Object, attempt: Attempt) -> Probes:
        name = container["name"]
        known = pod["status"].get("containerStatuses") or []
        ready = any(
            status["name"] == name and status["ready"] and status.get("containerID") == attempt.identifier
            for status in known
        )
        return Probes(
            container,
            self._runtime(pod, container, attempt, lenient=True),
            ready=ready,
            changed=self._wake,
            unhealthy=lambda text: self._node.events.warning(pod, "Unhealthy", text),
            dead=lambda why: self._restart(pod, container, attempt, why),
        )

    def _restart(self, pod: Object, container: Object, attempt: Attempt, why: str) -> None:
        name = container["name"]
        self._node.events.normal(pod, "Killing", f"Container {name} {why}, will be restarted")
        deadline = time.time() + pod["spec"]["terminationGracePeriodSeconds"]
        task = asyncio.create_task(self._stop(pod, container, attempt, lambda: deadline))
        self._tasks[f"stop/{name}/{attempt.number}"] = task

    async def _wake_at_exit(self, watch: str, attempt: Attempt) -> None:
        await attempt.wait()
        self._tasks.pop(watch, None)
        self._wake()

    def _runtime(self, pod: Object, container: Object, attempt: Attempt, *, lenient: bool = False) -> Runtime:
        """`lenient`: for a container that runs already, whose Secrets may be gone by now."""
        image = self._node.images.get(container["image"], Image(":".join(SYSTEM_PATH)))
        paths = self._volumes.paths(container, attempt.termination_log)
        try:
            variables = environment.declared(pod, container, self._lookup)
        except ConfigurationError:
            if not lenient:
                raise
            variables = {}
        temporary = paths.real.get(TEMPORARY, self.folder / "tmp")
        own = {"HOME": str(self.folder / "home"), "TMPDIR": str(temporary), "HOSTNAME": self._name}
        if self._node.mounts_token(pod):
            own["KUBECONFIG"] = str(self.folder / "kubeconfig")
        asked = container.get("workingDir")
        directory = Path(paths.rewrite(asked)) if asked else Path(image.working_dir or own["HOME"])
        return Runtime(
            address=pod["status"].get("podIP", ""),
            ports={port["name"]: port["containerPort"] for port in container.get("ports") or [] if "name" in port},
            environment=environment.process_environment(image, own, variables, paths),
            directory=directory,
            command=lambda words: [paths.rewrite(environment.expand(word, variables)) for word in words],
        )

    async def _stop(
        self, pod: Object | None, container: Object, attempt: Attempt, deadline: Callable[[], float]
    ) -> None:
        hook = (container.get("lifecycle") or {}).get("preStop")
        left_s = deadline() - time.time()
        if hook and pod is not None and left_s > 0:
            try:
                await act(hook, self._runtime(pod, container, attempt, lenient=True), left_s)
            except ActionError as error:
                self._node.events.warning(pod, "FailedPreStopHook", f"PreStopHook failed: {error}")
        attempt.terminate()
        while attempt.ended() is None:
            left_s = deadline() - time.time()
            if left_s <= 0:
                attempt.kill()
                left_s = RETRY_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(attempt.wait(), min(left_s, STOP_LOOK_S))

    def _back_off_s(self, attempt: Attempt, ended: Mapping[str, Any]) -> float:
        began, finished = (datetime.fromisoformat(ended[name]) for name in ("startedAt", "finishedAt"))
        if attempt.number == 0 or (finished - began).total_seconds() > BACK_OFF_RESET_S:
            return 0.0
        delay_s: float = min(BACK_OFF_S * 2.0 ** min(attempt.number - 1, 10), BACK_OFF_MAX_S)
        return delay_s - (datetime.now(UTC) - finished).total_seconds()

    def _home(self, container: Mapping[str, Any]) -> Path:
        name: str = container["name"]
        return self.folder / "containers" / name

    def _once(self, name: str, number: int, what: str) -> bool:
        new = (name, number, what) not in self._told
        self._told.add((name, number, what))
        return new

    def _close_probe(self, name: str) -> None:
        if name in self._probes:
            self._probes.pop(name)[1].close()

    def _lookup(self, resource: Resource, name: str) -> Object | None:
        return self._store.get(resource, self._namespace, name)


def _restarts(policy: str, exit_code: int, *, initial: bool) -> bool:
    if initial:
        return exit_code != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
