"""What the demo observes: the pods of steps, and memory in use."""

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

WATCH_TIMEOUT_S = 600
STEP, RUN = "slipway.dev/step", "slipway.dev/run"
"""Labels of a step's pod."""
KIB = 1024


@dataclass
class Pod:
    """A pod of a step. Its times are when this process heard of them, in seconds since the epoch."""

    step: str
    run: str
    requested: float
    started: float | None = None
    """Its container runs, or has ended."""


class PodWatch:
    """The pods of steps, by watching them, because successful pods are deleted. Used as a context."""

    def __init__(self, kubeconfig: Path, namespace: str, label: str = STEP) -> None:
        """`label` selects the pods; it is a label selector of Kubernetes."""
        self._api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
        self._watch, self._namespace, self._label = watch.Watch(), namespace, label
        self._left = threading.Event()
        self._pods: dict[str, Pod] = {}
        self.problem: str | None = None
        """Why pods or times may be missing."""

    def __enter__(self) -> Self:
        pods = self._api.list_namespaced_pod(self._namespace, label_selector=self._label)
        version = pods.metadata.resource_version
        threading.Thread(target=self._read, args=(version,), name="demo-pods", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._watch.stop()

    @property
    def steps(self) -> dict[str, str]:
        """Step by pod name."""
        return {name: pod.step for name, pod in list(self._pods.items())}

    def steps_of(self, run: str) -> list[str]:
        """The step of each pod of a run."""
        return [pod.step for pod in list(self._pods.values()) if pod.run == run]

    def of(self, run: str) -> dict[str, Pod]:
        """The pods of a run, by step; the last one where a step was tried again."""
        return {pod.step: pod for pod in list(self._pods.values()) if pod.run == run}

    def _read(self, version: str) -> None:
        try:
            while not self._left.is_set():
                stream = self._watch.stream(
                    self._api.list_namespaced_pod,
                    self._namespace,
                    label_selector=self._label,
                    resource_version=version,
                    timeout_seconds=WATCH_TIMEOUT_S,
                )
                for event in stream:
                    self._look(event["object"])
                    version = event["object"].metadata.resource_version
        except (client.ApiException, HTTPError) as error:
            if not self._left.is_set():
                self.problem = f"the watch of pods broke: {error}"[:200]

    def _look(self, pod_object: Any) -> None:
        labels = pod_object.metadata.labels
        pod = self._pods.setdefault(
            pod_object.metadata.name, Pod(labels.get(STEP, pod_object.metadata.name), labels.get(RUN, ""), time.time())
        )
        states = [status.state for status in pod_object.status.container_statuses or []]
        if pod.started is None and any(state.running or state.terminated for state in states):
            pod.started = time.time()


def resident_bytes(folder: Path) -> int | None:
    """Memory of all other processes whose command line or environment names `folder`; None if /proc does not show it.

    Proportional set size: a page that several processes share counts once (proc(5), smaps_rollup).
    """
    total, any_process = 0, False
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            named = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(folder).encode() in named and process.name != str(os.getpid()):
                rollup = (process / "smaps_rollup").read_text()
                total += int(rollup.split("\nPss:")[1].split()[0]) * KIB
                any_process = True
    return total if any_process else None
