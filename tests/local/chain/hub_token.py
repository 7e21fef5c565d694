"""A release of a model that the Hub gives to holders of a token alone, and who has the token meanwhile."""

import re
import threading
from dataclasses import dataclass
from pathlib import Path

from slipway.cli.runs.follow import RunView

GATED, TOKEN, SECRET = "slipway/demo-llama-gated", "demo-reader-token", "gated-hub"
SOURCE = {"repo": GATED, "revision": "v1", "token_secret": f"{SECRET}/token"}
STEP = re.compile(rb" -m slipway.tasks ([a-z-]+) ")
EVERY_S = 0.6


@dataclass(frozen=True)
class FirstRelease:
    """The run as it ended, the steps of its pods, and who had the token meanwhile."""

    view: RunView
    steps: list[str]
    seen: "Watcher"


class Watcher(threading.Thread):
    """Looks for the token in every process of the stack and every pod's object while the block runs."""

    def __init__(self, chain):
        super().__init__(daemon=True)
        self._chain, self._ended, self._stack = chain, threading.Event(), str(chain.stack.folder).encode()
        self.arguments, self.environments, self.objects, self.looks = set(), set(), set(), 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()

    def run(self):
        while not self._ended.wait(EVERY_S):
            self.looks += 1
            for folder in Path("/proc").glob("[0-9]*"):
                self._look_at(folder)
            for namespace in {self._chain.site.kubernetes.pipeline_namespace, self._chain.cluster.namespace}:
                told = self._chain.core.list_namespaced_pod(namespace, _preload_content=False).read()
                self.objects |= {namespace} if TOKEN.encode() in told else set()

    def _look_at(self, folder):
        try:
            environment = (folder / "environ").read_bytes()
            arguments = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            return
        if self._stack not in environment + arguments:  # another stack's steps have the same token
            return
        if TOKEN.encode() in arguments:
            self.arguments.add(arguments)
        if TOKEN.encode() in environment and arguments:  # none: it is being replaced, or ended after the first read
            step = STEP.search(arguments)
            self.environments.add(step[1].decode() if step else arguments.decode())
