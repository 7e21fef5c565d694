"""Creates a step's pod and waits until it runs, and gives up as soon as it is certain that it never will.

KubernetesPodOperator 10.25 waits the whole start time-out for a pod whose ConfigMap or Secret is missing, and does not
wait for a busy registry. It waits in the task (sync) or in the triggerer (deferrable); both use this module.
"""

import asyncio
import contextlib
import inspect
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from airflow.providers.cncf.kubernetes.triggers.pod import ContainerState, KubernetesPodTrigger
from airflow.providers.cncf.kubernetes.utils.pod_manager import (
    AsyncPodManager,
    PodLaunchTimeoutException,
    PodManager,
    PodPhase,
    detect_pod_terminate_early_issues,
)
from airflow.triggers.base import TriggerEvent
from kubernetes import client
from urllib3.exceptions import HTTPError

from slipway.airflow.outages import PatientHook
from slipway.airflow.pod_ends import wait_for_end
from slipway.airflow.trigger_events import send_events
from slipway.tasks.contracts.pods.pod_failures import Pod, PodFailure, abandoned
from slipway.tasks.contracts.pods.pod_starts import StartWatch
from slipway.tasks.contracts.pods.start_phases import (
    EXCEEDED,
    WAITS_FOR,
    PhaseClock,
    StartPhase,
    late,
    over_quota,
    phase_of,
    reason,
)

CANNOT_START = "cannot_start"
"""Key of the trigger's event that holds the failure."""
LAST_SEEN = "last_seen"
"""Key of an event about a pod that cannot be read any more: its metadata and status as they were seen last."""
EVENTS_EVERY_S = 3.0
REPORT_EVERY_S = 30.0
QUOTA_EVERY_S = 10.0
END_REPORTED_WITHIN_S, END_EVERY_S = 2.0, 0.1
"""How long after a container's end its kubelet, which looks once a second, should have reported it, and how often to
ask meanwhile."""
LONGEST_LOOK_S = 2.0
"""Between two looks at a pod that does not end although its log has."""
SHORTEST_TRIGGER_LOOK_S, SHARE_OF_TIME = 0.25, 0.05
"""The triggerer asks for a pod that cannot be watched so often that its end is noticed late by at most this share of
its time."""
FORBIDDEN, CONFLICT, SERVER_ERROR = 403, 409, 500


class PodCannotStartError(PodLaunchTimeoutException):
    """The pod will not start, or not end. The trigger reports an exception of this base class without a retry."""

    def __init__(self, failure: PodFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def api_message(error: client.ApiException) -> str:
    """The API server's message about a request that it rejected."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"


def as_json(pod: Any) -> Pod:
    """A pod or an event of either Kubernetes client as JSON."""
    plain: Pod = client.ApiClient().sanitize_for_serialization(pod)
    return plain


@dataclass
class Start:
    """The wait for one pod's start."""

    manager: PodManager | AsyncPodManager
    schedule_timeout_s: float
    pull_timeout_s: float
    watch: StartWatch = field(default_factory=StartWatch)
    logged: set[str] = field(default_factory=set)
    events: list[dict[str, Any]] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def wait(self, pod: Any, check_interval_s: float) -> None:
        """Wait until the pod runs or has ended, and log what it waits for.

        Raises:
            PodCannotStartError: it will not start, or one of the two phases before its program used up its time.
        """
        phases = PhaseClock({StartPhase.SCHEDULE: self.schedule_timeout_s, StartPhase.PULL: self.pull_timeout_s})
        reported = read_events_at = self.clock()
        while True:
            current = as_json(await _done(self.manager.read_pod(pod)))
            now = self.clock()
            if (current.get("status") or {}).get("phase") not in {PodPhase.PENDING, PodPhase.UNKNOWN, None}:
                phases.look(StartPhase.RUN, now)
                self.manager.log.info("pod %s started: %s", current["metadata"]["name"], phases.progress())
                return
            if now - read_events_at >= EVENTS_EVERY_S:
                read_events_at = now
                await self._read_events(pod)
            warnings = [event for event in self.events if event.get("type") == "Warning"]
            phase = phase_of(current)
            # only the kubelet knows when the container starts, and it says so by the pod's own phase
            changed = phases.look(StartPhase.PULL if phase is StartPhase.RUN else phase, now)
            why = reason(current, self.events)
            failure = self.watch.look(current, warnings, now) or (
                late(current, phases, why) if phases.is_late else None
            )
            if failure:
                raise PodCannotStartError(failure)
            if changed or now - reported >= REPORT_EVERY_S:
                reported = now
                self._report(current, phases, why)
            await self.sleep(check_interval_s)

    def _report(self, pod: Pod, phases: PhaseClock, why: str) -> None:
        what = WAITS_FOR[phases.phase]
        suffix = f": {why}" if why else ""
        self.manager.log.info("pod %s waits for %s (%s)%s", pod["metadata"]["name"], what, phases.progress(), suffix)

    async def _read_events(self, pod: Any) -> None:
        try:
            events = (await _done(self.manager.read_pod_events(pod))).items
        except Exception as error:  # noqa: BLE001 - each client has its own errors, and events only explain
            self._log_once(f"events of pod {pod.metadata.name} cannot be read: {error}")
            return
        self.events = sorted((as_json(event) for event in events), key=lambda event: event.get("lastTimestamp") or "")
        for event in self.events:
            if event.get("type") == "Warning":
                self._log_once(f"{event.get('reason')}: {event.get('message')}")

    def _log_once(self, line: str) -> None:
        """Log a line unless it was logged before."""
        if line not in self.logged:
            self.logged.add(line)
            self.manager.log.warning(line)


@dataclass
class Deletion:
    """How long one waiting process has seen its pod, of either client, as deleted."""

    clock: Callable[[], float] = time.monotonic
    _seen_at: float | None = None

    def give_up_if_lost(self, pod: Any, container: str) -> None:
        """Raise PodCannotStartError if a deleted pod should be gone and still counts as running."""
        if pod.metadata.deletion_timestamp is None or pod.status.phase != PodPhase.RUNNING:
            self._seen_at = None
            return
        now = self.clock()
        self._seen_at = now if self._seen_at is None else self._seen_at
        if failure := abandoned(as_json(pod), container, now - self._seen_at):
            raise PodCannotStartError(failure)


class StepPodManager(PodManager):
    """The task's own pod manager (sync)."""

    seen: Any = None
    """The pod as it was read last."""

    def __init__(
        self,
        *arguments: Any,
        schedule_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        **options: Any,
    ) -> None:
        """`schedule_timeout_s` limits the wait for a quota; the rest is the parent's."""
        super().__init__(*arguments, **options)
        self._schedule_timeout_s, self._clock, self._sleep = schedule_timeout_s, clock, sleep
        self._deletion = Deletion()

    def read_pod(self, pod: Any) -> Any:
        """Read the pod as the parent does."""
        self.seen = super().read_pod(pod)
        return self.seen

    def read_pod_logs(self, pod: Any, *arguments: Any, **options: Any) -> Any:
        """Read the log as the parent does; but if the pod's node does not answer, the reading ends and not the task.

        Raises:
            HTTPError: the node does not answer. The parent reads on as long as the pod counts as running.
            PodCannotStartError: the pod was deleted meanwhile, and its node is too late to end it.
        """
        try:
            return super().read_pod_logs(pod, *arguments, **options)
        except client.ApiException as error:
            if int(error.status or 0) < SERVER_ERROR:
                raise
            self._deletion.give_up_if_lost(self.read_pod(pod), str(options["container_name"]))
            what = f"the log of pod {pod.metadata.name} cannot be read: its node does not answer ({error.status})"
            raise HTTPError(what) from error

    def run_pod_async(self, pod: Any, **options: Any) -> Any:
        """Create the pod, once. While a quota of the namespace has no room for it, wait, as a Deployment does.

        Raises:
            PodCannotStartError: the quota had no room for as long as a pod may wait for a node.
        """
        body, began, reported = as_json(pod), self._clock(), -REPORT_EVERY_S
        while True:
            try:
                return self._client.create_namespaced_pod(body=body, namespace=pod.metadata.namespace, **options)
            except client.ApiException as error:
                if error.status == CONFLICT:  # it was created, and the answer was lost: nobody else makes its name
                    return self.read_pod(pod)
                why = api_message(error)
                if error.status != FORBIDDEN or EXCEEDED not in why:
                    raise
            waited_s = self._clock() - began
            if waited_s >= self._schedule_timeout_s:
                raise PodCannotStartError(over_quota(body, waited_s, why))
            if waited_s - reported >= REPORT_EVERY_S:
                reported = waited_s
                progress = f"schedule {waited_s:.0f} of {self._schedule_timeout_s:.0f} s"
                self.log.info("pod %s waits for room in a quota (%s): %s", pod.metadata.name, progress, why)
            self._sleep(QUOTA_EVERY_S)

    async def await_pod_start(
        self, pod: Any, schedule_timeout: int = 120, startup_timeout: int = 120, check_interval: float = 1
    ) -> None:
        """Wait for the start; see Start."""
        await Start(self, schedule_timeout, startup_timeout).wait(pod, check_interval)

    def await_pod_completion(
        self, pod: Any, istio_enabled: bool = False, container_name: str = "base", do_xcom_push: bool = False
    ) -> Any:
        """Wait for the pod's end as the parent does, but look sooner than every 2 s, and do not wait for a phase.

        A kubelet reports containers that have ended a second before the phase that follows from them.
        """
        if istio_enabled or do_xcom_push:
            return super().await_pod_completion(pod, istio_enabled, container_name, do_xcom_push)
        pause_s = END_EVERY_S
        while True:
            current = self.read_pod(pod)
            if current.status.phase in PodPhase.terminal_states or detect_pod_terminate_early_issues(current):
                return current
            if _have_succeeded(current):
                current.status.phase = PodPhase.SUCCEEDED
                return current
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_LOOK_S)

    def container_is_running(self, pod: Any, container_name: str) -> bool:
        """Whether the container still runs. The parent asks when its log has ended, which is before that is reported.

        If the answer is yes, the parent waits a second and reads the end of the log again, and then looks at the pod
        every other second.
        """
        deadline = self._clock() + END_REPORTED_WITHIN_S
        while super().container_is_running(pod, container_name):
            if self._clock() >= deadline:
                return True
            self._sleep(END_EVERY_S)
        return False


class AsyncStepPodManager(AsyncPodManager):
    """The triggerer's pod manager (deferrable)."""

    failure: PodFailure | None = None
    """Why the pod will not start."""
    seen: Any = None
    """The pod as it was read or reported last."""

    async def read_pod(self, pod: Any) -> Any:
        """Read the pod as the parent does."""
        self.seen = await super().read_pod(pod)
        return self.seen

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

    @property
    def poll_interval(self) -> float:
        """Seconds until the next look at a pod that runs; the longest ones are those that the trigger was given."""
        # not since this triggerer has it: one that starts again has all of them at once
        elapsed = datetime.now(UTC) - self.trigger_start_time
        return look_interval_s(elapsed.total_seconds(), self._longest_look_s)

    @poll_interval.setter
    def poll_interval(self, longest_s: float) -> None:
        self._longest_look_s = longest_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Serialize under the name of this class, so that the triggerer starts it instead of the parent."""
        return f"{__name__}.{type(self).__name__}", super().serialize()[1] | {"poll_interval": self._longest_look_s}

    @cached_property
    def hook(self) -> PatientHook:
        """The parent's hook, but it waits for an API server that does not answer."""
        return PatientHook(
            conn_id=self.kubernetes_conn_id,
            in_cluster=self.in_cluster,
            config_dict=self.config_dict,
            cluster_context=self.cluster_context,
            connection_extras=self.connection_extras,
        )

    @cached_property
    def _deletion(self) -> Deletion:
        return Deletion()

    @cached_property
    def pod_manager(self) -> AsyncStepPodManager:
        """The pod manager that gives up on a pod that can never start."""
        return AsyncStepPodManager(async_hook=self.hook)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch the pod as the parent does, put what was seen of it into the event, and have it sent at once."""
        async for event in super().run():
            if self.pod_manager.failure is not None:
                event.payload[CANNOT_START] = asdict(self.pod_manager.failure)
            if event.payload["status"] == "error" and (seen := self.pod_manager.seen) is not None:
                event.payload[LAST_SEEN] = {key: as_json(seen)[key] for key in ("metadata", "status")}
            yield event
            await send_events()

    async def _read_pod(self) -> Any:
        pod = await self._get_pod()
        try:
            self._deletion.give_up_if_lost(pod, self.base_container_name)
        except PodCannotStartError as error:
            self.pod_manager.failure = error.failure
            raise
        return pod

    async def _wait_for_container_completion(self) -> TriggerEvent:
        """Look at the pod as the parent does, which repeats it, but only once a watch has reported its end."""
        deadline = self.trigger_kwargs.get("_execution_deadline")
        remaining_s = None if deadline is None else deadline - time.time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(remaining_s):
                await wait_for_end(self.hook, self._read_pod, self._has_ended, self._pause)
        return await super()._wait_for_container_completion()

    def _has_ended(self, pod: Any) -> bool:
        self.pod_manager.seen = pod
        return self.define_pod_container_state(pod) in {ContainerState.TERMINATED, ContainerState.FAILED}

    async def _pause(self, error: Exception) -> None:
        self.log.info("pod %s is not watched: %s", self.pod_name, error)
        await asyncio.sleep(self.poll_interval)


def look_interval_s(elapsed_s: float, longest_s: float) -> float:
    """Seconds between two looks at a pod that has run for `elapsed_s`."""
    return min(longest_s, max(SHORTEST_TRIGGER_LOOK_S, SHARE_OF_TIME * elapsed_s))


def _have_succeeded(pod: Any) -> bool:
    """Whether all containers of a pod have ended with 0. Those of a step are never restarted."""
    ends = [each.state and each.state.terminated for each in pod.status.container_statuses or []]
    return len(ends) == len(pod.spec.containers) and all(end and end.exit_code == 0 for end in ends)


async def _done(value: Any) -> Any:
    """The value, for which only one of the two clients has to be awaited."""
    return await value if inspect.isawaitable(value) else value
