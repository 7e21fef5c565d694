"""What the demo watches while releases happen: requests to the live Service, pods that start, memory in use."""

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

from tasks.adapters.triton import GenerateRequest, TritonClient
from tasks.contracts.spec import SmokeQuestion

PAUSE_S = 0.25
ANSWER_TIMEOUT_S = 30.0
WATCH_TIMEOUT_S = 600
KIB = 1024


@dataclass
class Traffic:
    """A client of the live Service: a few questions a second, each over its own connection, each answer checked.

    Used as a context; the counts are whole after it. It stops by itself when the process ends.
    """

    model: str
    host: str
    ports: dict[str, int]
    question: SmokeQuestion
    requests: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask_on, name="demo-traffic", daemon=True)
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(2 * ANSWER_TIMEOUT_S)
        self.seconds = time.monotonic() - self._began

    def _ask_on(self) -> None:
        while not self._stop.is_set():
            self.requests += 1
            try:
                self._ask()
            except Exception as error:  # noqa: BLE001 - to a client every error is a failed request
                self.failures.append(f"{type(error).__name__}: {error}"[:200])
            self._stop.wait(PAUSE_S)

    def _ask(self) -> None:
        text = ask(self.model, self.host, self.ports, self.question)
        if not self.question.accepts(text):
            self.failures.append(f"answered {text!r}, expected {self.question.answer!r}"[:200])


def ask(model: str, host: str, ports: dict[str, int], question: SmokeQuestion) -> str:
    """The model's whole answer.

    Raises:
        PipelineError: nobody answers, or the question is refused.
    """
    with TritonClient(host, ports["http"], ports["grpc"]) as connection:
        return connection.generate(model, GenerateRequest(question.prompt, question.max_tokens), ANSWER_TIMEOUT_S).text


class PodCount:
    """Counts the pods of a run by watching them start, for pods that succeeded are deleted. Used as a context."""

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
    """Memory of every other process whose command line or environment names `folder`; None where /proc does not say.

    Proportional set size: a page that several processes share counts once (proc(5), smaps_rollup).
    """
    total, found = 0, False
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            named = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(folder).encode() in named and process.name != str(os.getpid()):
                rollup = (process / "smaps_rollup").read_text()
                total += int(rollup.split("\nPss:")[1].split()[0]) * KIB
                found = True
    return total if found else None
