"""Records every pod of a namespace by its UID, as the cluster's watch reports them."""

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kubernetes import client, config
from urllib3.exceptions import HTTPError

WATCH_S = 3600
SUCCEEDED = "Succeeded"


@dataclass
class Pod:
    """A pod that the watch reported."""

    name: str
    run: str
    step: str
    phase: str
    """The last one that was reported."""
    deleted: bool = False


class PodRecord:
    """The pods of a namespace that exist or are created while the context lasts, by their UIDs."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
        self._namespace, self._left = namespace, threading.Event()
        self.pods: dict[str, Pod] = {}
        self.problem = ""
        """Why the record may not be whole."""

    def __enter__(self) -> Self:
        version = self._api.list_namespaced_pod(self._namespace).metadata.resource_version
        self._stream = self._api.list_namespaced_pod(
            self._namespace, watch=True, resource_version=version, timeout_seconds=WATCH_S, _preload_content=False
        )
        threading.Thread(target=self._read, name="bench-pods", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # the thread ends with the process: closing a stream that another thread reads waits for its next byte
        self._left.set()

    def _read(self) -> None:
        unfinished = b""
        try:
            for part in self._stream.stream(amt=None):
                *lines, unfinished = (unfinished + part).split(b"\n")
                for line in lines:
                    self._note(json.loads(line))
            problem = "the watch of pods ended"
        except (HTTPError, OSError, ValueError) as error:
            problem = f"the watch of pods broke: {error}"[:200]
        if not self._left.is_set():
            self.problem = problem

    def _note(self, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            raise ValueError(str(event["object"]))
        metadata = event["object"]["metadata"]
        labels, phase = metadata.get("labels") or {}, (event["object"].get("status") or {}).get("phase", "")
        pod = self.pods.setdefault(
            metadata["uid"],
            Pod(metadata["name"], labels.get("slipway.dev/run", ""), labels.get("slipway.dev/step", ""), phase),
        )
        pod.phase, pod.deleted = phase, event["type"] == "DELETED"
