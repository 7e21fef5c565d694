"""Waits for an API server that gives no answer, so that its restart costs a task time instead of a try.

A control plane is away for some seconds when it fails over and for minutes while it is upgraded. Three tries of a task
are over within one, and a roll-back that is over by then leaves a candidate behind, with its GPUs. A step's pod goes on
meanwhile, so the task has nothing to do but to wait. What the API server answers, refusals included, is passed on, but
for the first refusals after an outage: an API server that is starting knows no roles and no accounts yet.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
from airflow.providers.common.compat.sdk import AirflowException
from kubernetes.client.rest import RESTClientObject
from urllib3 import exceptions as urllib3_errors

from slipway.tasks.contracts.wire.no_answer import UNTRUSTED, why_no_answer

PATIENCE_S = 600.0
"""Longer than a managed control plane takes to be replaced."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
REPORT_EVERY_S = 30.0
STARTING_S, STARTING = 60.0, frozenset({401, 403})
"""How long an API server that was away may answer with these: it listens before it has read roles and accounts."""
NO_ANSWER = (urllib3_errors.HTTPError, aiohttp.ClientConnectionError, TimeoutError)
"""What the two Kubernetes clients raise when no HTTP answer came."""

log = logging.getLogger(__name__)


class NoAnswerError(AirflowException):
    """The API server gave no answer for PATIENCE_S. Another try may help; the parent's own repetition does not."""


@dataclass
class Outage:
    """What one task, or one trigger, knows of the time during which its API server has not answered."""

    patience_s: float = PATIENCE_S
    clock: Callable[[], float] = time.monotonic
    _began: float | None = None
    _refused: float | None = None
    _reported: float = 0.0
    _pause_s: float = FIRST_PAUSE_S

    def next_pause_s(self, error: Exception) -> float:
        """Seconds to wait before the next try of a request that got no answer: longer each time until one comes.

        Raises:
            NoAnswerError: there has been no answer to any request for `patience_s`, or waiting cannot help.
        """
        self._check(error)
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        return pause_s

    def over(self) -> None:
        """An answer has come."""
        if self._began is not None:
            log.info("the API server answers again, after %.0f s", self.clock() - self._began)
        self._began = self._refused = None
        self._pause_s = FIRST_PAUSE_S

    def is_starting(self, error: Exception) -> bool:
        """Whether a refusal may come from an API server that was away and is starting: then the request is repeated."""
        if self._began is None or getattr(error, "status", None) not in STARTING:
            return False
        self._refused = self.clock() if self._refused is None else self._refused
        return self.clock() - self._refused < STARTING_S

    def _check(self, error: Exception) -> None:
        now, why = self.clock(), why_no_answer(error)
        if self._began is None:
            self._began, self._reported = now, now - REPORT_EVERY_S
        silent_s = now - self._began
        if silent_s >= self.patience_s or why == UNTRUSTED:
            raise NoAnswerError(
                f"the cluster's API server has not answered for {silent_s:.0f} s ({why}). Check that the cluster is up "
                "and that Airflow reaches the address in its connection or kubeconfig; then clear this task."
            ) from error
        if now - self._reported >= REPORT_EVERY_S:
            self._reported = now
            log.warning(
                "the API server does not answer (%s): waited %.0f of at most %.0f s", why, silent_s, self.patience_s
            )


class PatientRest(RESTClientObject):  # type: ignore[misc]  # the client has no types
    """The Kubernetes client's HTTP, which repeats a request that got no answer.

    Each of this package's requests may be repeated: a pod is created under a name that is made beforehand.
    """

    def __init__(self, configuration: Any, outage: Outage, sleep: Callable[[float], None] = time.sleep) -> None:
        # urllib3 would repeat each request three times first, and log each time; with False, the client takes an error
        # of TLS for an answer
        configuration.retries = 0
        super().__init__(configuration)
        self._outage, self._sleep = outage, sleep

    def request(self, *arguments: Any, **options: Any) -> Any:
        """Send a request until it is answered.

        Raises:
            NoAnswerError: see Outage.
            ApiException: the API server refused it.
        """
        while True:
            try:
                answer = super().request(*arguments, **options)
            except NO_ANSWER as error:
                self._sleep(self._outage.next_pause_s(error))
            except Exception as error:  # a refusal is an answer too
                if not self._outage.is_starting(error):
                    self._outage.over()
                    raise
                self._sleep(FIRST_PAUSE_S)
            else:
                self._outage.over()
                return answer


class PatientHook(AsyncKubernetesHook):
    """The triggerer's hook, which reads a pod until there is an answer."""

    def __init__(self, *arguments: Any, outage: Outage | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._outage = outage or Outage()

    async def get_pod(self, name: str, namespace: str) -> Any:
        """Read a pod.

        Raises:
            NoAnswerError: see Outage.
        """
        return await self._answered(lambda: super(PatientHook, self).get_pod(name, namespace))

    async def _answered(self, read: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                answer = await read()
            except NO_ANSWER as error:
                await asyncio.sleep(self._outage.next_pause_s(error))
            except Exception as error:
                if not self._outage.is_starting(error):
                    raise
                await asyncio.sleep(FIRST_PAUSE_S)
            else:
                self._outage.over()
                return answer
