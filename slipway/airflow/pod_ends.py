"""Waits in the triggerer until the API server reports a pod's end, instead of asking for the pod again and again."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
from kubernetes_asyncio import client, watch

WATCH_S, MARGIN_S, EARLY_S = 60, 10, 5
"""A watch is renewed after this time: one whose connection broke off silently reports nothing any more."""


async def wait_for_end(
    hook: AsyncKubernetesHook,
    read_pod: Callable[[], Awaitable[Any]],
    has_ended: Callable[[Any], bool],
    pause: Callable[[Exception], Awaitable[None]],
) -> None:
    """Return once a pod has ended or has vanished.

    Args:
        hook: makes the connection.
        read_pod: reads the pod; what it raises ends the wait.
        has_ended: whether the pod, as the API server reports it, has ended. It sees every report.
        pause: waits after a watch that failed. Then the pod is read and watched again.
    """
    while not has_ended(pod := await read_pod()):
        began = time.monotonic()
        try:
            if await _reports_end(hook, pod, has_ended):
                return
            if time.monotonic() - began < EARLY_S:
                await pause(ConnectionError("the API server ended the watch at once"))
        except Exception as error:  # noqa: BLE001 - several libraries' errors, and all leave the same thing to do
            await pause(error)


async def _reports_end(hook: AsyncKubernetesHook, pod: Any, has_ended: Callable[[Any], bool]) -> bool:
    """Whether a watch of WATCH_S seconds, from the time of `pod` on, reports its end."""
    name, namespace, version = pod.metadata.name, pod.metadata.namespace, pod.metadata.resource_version
    async with asyncio.timeout(WATCH_S + MARGIN_S), hook.get_conn() as connection, watch.Watch("V1Pod") as changes:
        async for change in changes.stream(
            client.CoreV1Api(connection).list_namespaced_pod,
            namespace,
            field_selector=f"metadata.name={name}",
            resource_version=version,
            timeout_seconds=WATCH_S,
            _request_timeout=WATCH_S + MARGIN_S,
        ):
            if has_ended(change["object"]) or change["type"] == "DELETED":
                return True
    return False
