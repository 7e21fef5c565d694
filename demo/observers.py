"""What the demo observes: the pods that start, and memory in use."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any, Self

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

WATCH_TIMEOUT_S = 600
KIB = 1024


class PodCount:
    """Counts the pods of a run by watching them, because successful pods are deleted. Used as a context."""

    def __init__(self, kubeconfig: Path, namespace: str, label: str) -> None:
        self._api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
        self._watch, self._namespace, self._label = watch.Watch(), namespace, label
        self._left = threading.Event()
        self.steps: dict[str, str] = {}
        """Step by pod name."""
        self.problem: str | None = None
        """Why the count may be too small."""

    def __enter__(self) -> Self:
        pods = self._api.list_namespaced_pod(self._namespace, label_selector=self._label)
        version = pods.metadata.resource_version
        threading.Thread(target=self._read, args=(version,), name="demo-pods", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._watch.stop()

    def _read(self, version: str) -> None:
        stream = self._watch.stream(
            self._api.list_namespaced_pod,
            self._namespace,
            label_selector=self._label,
            resource_version=version,
            timeout_seconds=WATCH_TIMEOUT_S,
        )
        try:
            for event in stream:
                pod: Any = event["object"]
                self.steps[pod.metadata.name] = pod.metadata.labels.get("slipway.dev/step", pod.metadata.name)
        except (client.ApiException, HTTPError) as error:
            if not self._left.is_set():
                self.problem = f"the watch of pods broke: {error}"[:200]


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
