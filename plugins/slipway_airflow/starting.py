"""Waits until a step's pod runs, and gives up as soon as it is certain that it never will.

KubernetesPodOperator 10.25 waits the whole start time-out for a pod whose ConfigMap or Secret is missing, and does not
wait for a busy registry. It waits in the task (sync) or in the triggerer (deferrable); both use this module.
"""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from airflow.providers.cncf.kubernetes.utils.pod_manager import (
    AsyncPodManager,
    PodLaunchTimeoutException,
    PodManager,
    PodPhase,
)
from airflow.triggers.base import TriggerEvent
from kubernetes import client

from tasks.contracts.pod_failures import Pod, PodFailure
from tasks.contracts.pod_starts import StartWatch, unscheduled

CANNOT_START = "cannot_start"
"""Key of the trigger's event that holds the failure."""
EVENTS_EVERY_S = 3.0


class PodCannotStartError(PodLaunchTimeoutException):
    """The pod will not start. The trigger reports an exception of this base class to the task without a retry."""

    def __init__(self, failure: PodFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def as_json(pod: Any) -> Pod:
    """A pod or an event of either Kubernetes client as JSON."""
    plain: Pod = client.ApiClient().sanitize_for_serialization(pod)
    return plain


@dataclass
class Start:
    """The wait for one pod's start."""

    manager: PodManager | AsyncPodManager
    schedule_timeout_s: float
    startup_timeout_s: float
    watch: StartWatch = field(default_factory=StartWatch)
    logged: set[str] = field(default_factory=set)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    scheduled_at: float | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def wait(self, pod: Any, check_interval_s: float) -> None:
        """Wait until the pod runs or has ended.

        Raises:
            PodCannotStartError: it will not start.
        """
        began = read_events_at = self.clock()
        while True:
            current = as_json(await _done(self.manager.read_pod(pod)))
            if (current.get("status") or {}).get("phase") not in {PodPhase.PENDING, PodPhase.UNKNOWN, None}:
                return
            now = self.clock()
            if now - read_events_at >= EVENTS_EVERY_S:
                read_events_at = now
                await self._read_events(pod)
            if failure := self.watch.look(current, self.warnings, now) or self._too_late(current, began, now):
                raise PodCannotStartError(failure)
            await self.sleep(check_interval_s)

    def _too_late(self, pod: Pod, began: float, now: float) -> PodFailure | None:
        name, why = pod["metadata"]["name"], unscheduled(pod)
        if why:
            self._log_once(f"pod {name} is not scheduled yet: {why}")
        conditions = (pod.get("status") or {}).get("conditions") or []
        if any(each["type"] == "PodScheduled" and each["status"] == "True" for each in conditions):
            self.scheduled_at = self.scheduled_at or now
            if now - self.scheduled_at >= self.startup_timeout_s:
                events = "; ".join(sorted(self.logged)) or "no warning was recorded"
                what = f"pod {name} did not start within {self.startup_timeout_s:.0f} s: {events}"
                return PodFailure("slow start", what)
        elif now - began >= self.schedule_timeout_s:
            what = f"pod {name} was not scheduled within {self.schedule_timeout_s:.0f} s: {why or 'no reason given'}"
            return PodFailure("not scheduled", what)
        return None

    async def _read_events(self, pod: Any) -> None:
        try:
            events = (await _done(self.manager.read_pod_events(pod))).items
        except Exception as error:  # noqa: BLE001 - each client has its own errors, and events only explain
            self._log_once(f"events of pod {pod.metadata.name} cannot be read: {error}")
            return
        self.warnings = [as_json(event) for event in events if event.type == "Warning"]
        for event in self.warnings:
            self._log_once(f"{event.get('reason')}: {event.get('message')}")

    def _log_once(self, line: str) -> None:
        """Log a line unless it was logged before."""
        if line not in self.logged:
            self.logged.add(line)
            self.manager.log.warning(line)


class StepPodManager(PodManager):
    """The task's own pod manager (sync)."""

    async def await_pod_start(
        self, pod: Any, schedule_timeout: int = 120, startup_timeout: int = 120, check_interval: float = 1
    ) -> None:
        """Wait for the start; see Start."""
        await Start(self, schedule_timeout, startup_timeout).wait(pod, check_interval)


class AsyncStepPodManager(AsyncPodManager):
    """The triggerer's pod manager (deferrable)."""

    failure: PodFailure | None = None
    """Why the pod will not start."""

    async def await_pod_start(
        self, pod: Any, schedule_timeout: int = 120, startup_timeout: int = 120, check_interval: float = 1
    ) -> None:
        """Wait for the start; see Start."""
        try:
            await Start(self, schedule_timeout, startup_timeout).wait(pod, check_interval)
        except PodCannotStartError as error:
            self.failure = error.failure
            raise


class StepPodTrigger(KubernetesPodTrigger):
    """The trigger of a deferred step: it passes a failure to start to the task as data, not only as text."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Serialize under the name of this class, so that the triggerer starts it instead of the parent."""
        return f"{__name__}.{type(self).__name__}", super().serialize()[1]

    @cached_property
    def pod_manager(self) -> AsyncStepPodManager:
        """The pod manager that gives up on a pod that can never start."""
        return AsyncStepPodManager(async_hook=self.hook)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch the pod as the parent does, and put the failure into the event."""
        async for event in super().run():
            if self.pod_manager.failure is not None:
                event.payload[CANNOT_START] = asdict(self.pod_manager.failure)
            yield event


async def _done(value: Any) -> Any:
    """The value, for which only one of the two clients has to be awaited."""
    return await value if inspect.isawaitable(value) else value
