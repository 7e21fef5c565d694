"""The containers of one pod: starts, restarts, observes, probes and stops them.

A container's folder holds its state. Only the results of probes are lost with the server; probes then start from the
stored status.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..objects.quantities import quantity
from ..objects.resources import Object, Resource
from ..objects.status import ApiError
from ..objects.store import Store
from . import attempts, environment
from .actions import ActionError, Runtime, act
from .attempts import Attempt
from .confinement import NAMESPACES, View
from .environment import ConfigurationError, MountError, Paths
from .images import SYSTEM_PATH, Image
from .node import Node
from .pod_status import Seen, is_sidecar, stored_status
from .probes import Probes
from .pulls import Pull
from .restarts import back_off_s, in_stop_order, restart_policy, restarts, unnoticed_s
from .volumes import Volumes

RETRY_S = 1.0
STOP_LOOK_S = 0.25
TEMPORARY = "/tmp"  # noqa: S108 - the container's, never ours
CREDENTIALS = "serviceaccount"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a folder


class Containers:
    """The containers of one pod, for its worker. `wake` is called when one of them changes."""

    def __init__(self, store: Store, node: Node, pod: Object, wake: Callable[[], None]) -> None:
        self._store, self._node, self._wake = store, node, wake
        self._namespace, self._name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._uid = pod["metadata"]["uid"]
        self.folder: Path = node.state / "pods" / self._uid
        self.volumes = Volumes(pod, self.folder, node.state / "claims", self._lookup)
        self._probes: dict[str, tuple[Attempt, Probes]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pulls: dict[str, Pull] = {}
        self._backed_off: set[tuple[str, int]] = set()
        self._prepared = False

    def close(self) -> None:
        """Stop observing. The containers keep running."""
        self.close_probes()
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def prepare(self, pod: Object) -> None:
        """Create the pod's folder, volumes and kubeconfig.

        Raises:
            MountError: something that a volume needs is missing.
        """
        if not self._prepared:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.volumes.prepare()
            (self.folder / "home").mkdir(exist_ok=True)
            (self.folder / "tmp").mkdir(exist_ok=True)
            if self._node.mounts_token(pod):
                try:
                    self._node.write_credentials(pod, self.folder / CREDENTIALS)
                except ApiError as error:
                    raise MountError([("kube-api-access", f"failed to fetch token: {error.message}")]) from error
            self._prepared = True

    async def keep(self, pod: Object, container: Object, *, initial: bool) -> tuple[Seen, float | None]:
        """Start, restart or observe one container. A sidecar is treated as a main container that always restarts."""
        initial, policy = initial and not is_sidecar(container), restart_policy(pod, container)
        attempt = attempts.latest(self._home(container))
        ended = attempt.ended() if attempt else None
        if attempt is not None and ended is None:
            return self._look(pod, container, attempt), None
        if ended is not None and attempt is not None and (wait_s := unnoticed_s(ended, self._node.notice_s)) > 0:
            return self._as_it_was(pod, container, attempt), wait_s
        self._close_probe(container["name"])
        if ended is not None and attempt is not None:
            if not restarts(policy, ended["exitCode"], initial=initial):
                return Seen(container, attempt, ended), None
            wait_s = back_off_s(attempt, ended)
            if wait_s > 0:
                return self._backing_off(pod, container, attempt, ended, wait_s)
        return await self._start(pod, container, attempt, ended)

    def observed(self, pod: Object, kind: str) -> list[Seen]:
        """The containers as they are, without starting or restarting any."""
        observations = []
        for container in pod["spec"].get(kind) or []:
            attempt = attempts.latest(self._home(container))
            ended = attempt.ended() if attempt else None
            running = attempt is not None and ended is None
            observations.append(
                self._as_it_was(pod, container, attempt) if running else Seen(container, attempt, ended)
            )
        return observations

    async def stop_all(self, deadline: Callable[[], float], pod: Object | None = None) -> None:
        """Stop every running container; those still running at `deadline` are killed.

        As the kubelet does, every preStop hook runs at once; a sidecar is then signalled only after the main containers
        and the sidecars declared after it have ended (killContainer in pkg/kubelet/kuberuntime, Kubernetes 1.29).
        """
        tasks: list[asyncio.Task[None]] = []
        for container in in_stop_order(pod, [folder.name for folder in sorted(self.folder.glob("containers/*"))]):
            attempt = attempts.latest(self._home(container))
            if attempt is not None and attempt.ended() is None:
                if pod is not None:
                    self._node.events.normal(pod, "Killing", f"Stopping container {container['name']}")
                after = tuple(tasks) if is_sidecar(container) else ()
                tasks.append(asyncio.create_task(self._stop(pod, container, attempt, deadline, after)))
        await asyncio.gather(*tasks)

    def end_liveness_probes(self) -> None:
        """Stop liveness probes, so that no container is restarted; readiness probes continue."""
        for _, probes in self._probes.values():
            probes.end_liveness()

    def close_probes(self) -> None:
        """End every probe."""
        for name in list(self._probes):
            self._close_probe(name)

    def _backing_off(
        self, pod: Object, container: Object, attempt: Attempt, ended: Mapping[str, Any], wait_s: float
    ) -> tuple[Seen, float]:
        name = container["name"]
        text = f"Back-off restarting failed container {name} in pod {self._name}_{self._namespace}({self._uid})"
        if (name, attempt.number) not in self._backed_off:
            self._backed_off.add((name, attempt.number))
            self._node.events.warning(pod, "BackOff", text)
        return Seen(container, attempt, ended, {"reason": "CrashLoopBackOff", "message": text}, restarts=True), wait_s

    async def _start(
        self, pod: Object, container: Object, last: Attempt | None, ended: Mapping[str, Any] | None
    ) -> tuple[Seen, float | None]:
        name = container["name"]
        image = self._node.images.get(container["image"])
        if image is None:
            return self._not_pulled(pod, container, last, ended)
        pull = self._pulls.setdefault(name, Pull(container))
        if (wait_s := pull.wait_s(image, self._node.pulled, functools.partial(self._node.events.normal, pod))) > 0:
            return Seen(container, last, ended, restarts=last is not None), wait_s
        number = last.number + 1 if last else 0
        try:
            runtime = self._runtime(pod, container, Attempt(self._home(container) / str(number), number))
        except (ConfigurationError, ValueError) as error:
            self._node.events.warning(pod, "Failed", f"Error: {error}")
            waiting = {"reason": "CreateContainerConfigError", "message": str(error)}
            return Seen(container, last, ended, waiting, restarts=last is not None), RETRY_S
        arguments = [*(container.get("command") or image.command), *(container.get("args") or [])]
        limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        attempt = await attempts.start(
            self._node.shims,
            self._home(container),
            runtime.command(arguments) or ["no command is specified"],
            runtime.environment,
            runtime.directory,
            int(quantity(limit)) if limit else None,
            runtime.view,
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

    def _as_it_was(self, pod: Object, container: Object, attempt: Attempt | None) -> Seen:
        """A container as it was last seen running, from its probes or the pod's status."""
        known, probes = self._probes.get(container["name"], (None, None))
        if known == attempt and probes is not None:
            return Seen(container, attempt, ready=probes.ready, started=probes.started)
        status = stored_status(pod, container["name"])
        return Seen(container, attempt, ready=status.get("ready", False), started=status.get("started", False))

    def _not_pulled(
        self, pod: Object, container: Object, last: Attempt | None, ended: Mapping[str, Any] | None
    ) -> tuple[Seen, float]:
        reason, text, delay_s = self._pulls.setdefault(container["name"], Pull(container)).attempt(
            self._node.images,
            functools.partial(self._node.events.normal, pod),
            functools.partial(self._node.events.warning, pod),
        )
        return Seen(container, last, ended, {"reason": reason, "message": text}, restarts=last is not None), delay_s

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
        status = stored_status(pod, container["name"])
        return Probes(
            container,
            self._runtime(pod, container, attempt, lenient=True),
            ready=status.get("ready", False) and status.get("containerID") == attempt.identifier,
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
        await attempt.wait(self._node.shims)
        self._tasks.pop(watch, None)
        self._wake()

    def _runtime(self, pod: Object, container: Object, attempt: Attempt, *, lenient: bool = False) -> Runtime:
        """`lenient` is for a container that already runs, whose Secrets may be gone by now."""
        image = self._node.images.get(container["image"], Image(":".join(SYSTEM_PATH)))
        paths = self.volumes.paths(container, attempt.termination_log)
        try:
            variables = environment.declared(pod, container, self._lookup)
        except ConfigurationError:
            if not lenient:
                raise
            variables = {}
        own = {"HOME": str(self.folder / "home"), "HOSTNAME": self._name}
        view = self._view(container, attempt)
        if view is None or (view.method != NAMESPACES and TEMPORARY in paths.real):
            own["TMPDIR"] = str(paths.real.get(TEMPORARY, self.folder / "tmp"))
        if self._node.mounts_token(pod):
            paths = Paths({**paths.real, TOKEN_PATH: self.folder / CREDENTIALS})
            own["KUBECONFIG"] = str(self.folder / CREDENTIALS / "kubeconfig")
        working_dir = container.get("workingDir")
        directory = Path(paths.rewrite(working_dir)) if working_dir else Path(image.working_dir or own["HOME"])
        return Runtime(
            address=pod["status"].get("podIP", ""),
            ports={port["name"]: port["containerPort"] for port in container.get("ports") or [] if "name" in port},
            environment=environment.process_environment(image, own, variables, paths),
            directory=directory,
            command=lambda arguments: [paths.rewrite(environment.expand(each, variables)) for each in arguments],
            view=view,
        )

    def _view(self, container: Object, attempt: Attempt) -> View | None:
        if not (container.get("securityContext") or {}).get("readOnlyRootFilesystem"):
            return None
        return self.volumes.view(container, attempt.termination_log, self._node.confinement, self._node.kept)

    async def _stop(
        self,
        pod: Object | None,
        container: Object,
        attempt: Attempt,
        deadline: Callable[[], float],
        after: Sequence[asyncio.Task[None]] = (),
    ) -> None:
        hook = (container.get("lifecycle") or {}).get("preStop")
        left_s = deadline() - time.time()
        if hook and pod is not None and left_s > 0:
            try:
                await act(hook, self._runtime(pod, container, attempt, lenient=True), left_s)
            except ActionError as error:
                self._node.events.warning(pod, "FailedPreStopHook", f"PreStopHook failed: {error}")
        if after:
            await asyncio.wait(after, timeout=max(0.0, deadline() - time.time()))
        attempt.terminate()
        while attempt.ended() is None:
            left_s = deadline() - time.time()
            if left_s <= 0:
                attempt.kill()
                left_s = RETRY_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(attempt.wait(self._node.shims), min(left_s, STOP_LOOK_S))

    def _home(self, container: Mapping[str, Any]) -> Path:
        return Path(self.folder, "containers", container["name"])

    def _close_probe(self, name: str) -> None:
        if name in self._probes:
            self._probes.pop(name)[1].close()

    def _lookup(self, resource: Resource, name: str) -> Object | None:
        return self._store.get(resource, self._namespace, name)
