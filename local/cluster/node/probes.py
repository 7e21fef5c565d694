"""Startup, readiness and liveness probes of one running container."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from .actions import ActionError, Runtime, act

UNHEALTHY_TEXT = {"startupProbe": "Startup", "readinessProbe": "Readiness", "livenessProbe": "Liveness"}


class Probes:
    """Runs a container's probes until it is closed.

    `ready` and `started` hold the results. `changed` is called when one of them changes, `unhealthy` with a message for
    every failed probe, and `dead` once, when the container must be restarted.
    """

    def __init__(
        self,
        container: Mapping[str, Any],
        runtime: Runtime,
        *,
        ready: bool,
        changed: Callable[[], None],
        unhealthy: Callable[[str], None],
        dead: Callable[[str], None],
    ) -> None:
        """`ready` is the last known readiness of a container that was taken over."""
        self._container, self._runtime = container, runtime
        self._changed, self._unhealthy, self._dead = changed, unhealthy, dead
        self.ready = ready or not (container.get("readinessProbe") or container.get("startupProbe"))
        self.started = ready or not container.get("startupProbe")
        self._tasks = [asyncio.create_task(self._run())]
        self._liveness: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stop probing."""
        for task in self._tasks:
            task.cancel()

    def end_liveness(self) -> None:
        """Stop the probes that could restart the container."""
        if self._liveness is not None:
            self._liveness.cancel()
        if not self.started:
            self.close()

    async def _run(self) -> None:
        if not self.started:
            await self._until_started()
            self.started = True
            self.ready = self.ready or not self._container.get("readinessProbe")
            self._changed()
        if self._container.get("readinessProbe"):
            self._tasks.append(asyncio.create_task(self._watch_readiness()))
        if self._container.get("livenessProbe"):
            self._liveness = asyncio.create_task(self._watch_liveness())
            self._tasks.append(self._liveness)

    async def _until_started(self) -> None:
        probe = self._container["startupProbe"]
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        failures = 0
        while not await self._look("startupProbe"):
            failures += 1
            if failures >= probe.get("failureThreshold", 3):
                self._dead("failed startup probe")
                await asyncio.Event().wait()
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _watch_readiness(self) -> None:
        probe = self._container["readinessProbe"]
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        successes = failures = 0
        while True:
            if await self._look("readinessProbe"):
                successes, failures = successes + 1, 0
            else:
                successes, failures = 0, failures + 1
            before = self.ready
            if successes >= probe.get("successThreshold", 1):
                self.ready = True
            elif failures >= probe.get("failureThreshold", 3):
                self.ready = False
            if self.ready != before:
                self._changed()
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _watch_liveness(self) -> None:
        probe = self._container["livenessProbe"]
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        failures = 0
        while True:
            failures = 0 if await self._look("livenessProbe") else failures + 1
            if failures >= probe.get("failureThreshold", 3):
                self._dead("failed liveness probe")
                return
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _look(self, name: str) -> bool:
        probe = self._container[name]
        try:
            await act(probe, self._runtime, probe.get("timeoutSeconds", 1))
        except ActionError as error:
            self._unhealthy(f"{UNHEALTHY_TEXT[name]} probe failed: {error}")
            return False
        return True
