"""Pods of a release that follow its adapters: the project's own code in each, without a server and without a runtime."""

import json
import sys
from pathlib import Path

from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.serving.pod.adapter_files import FILE, LOOK_S, AdapterFiles
from tests.support.paths import REPOSITORY

sys.path.extend(str(REPOSITORY / "model_repository_templates" / "vllm" / "model" / part) for part in ("1",))

from generation.requests.adapters import chosen
from generation.requests.question import RefusedError
from live_adapters import LiveAdapters


class FollowingPod:
    """One pod: its sidecar, and the model in its server, which answers with the rank of the adapter.

    Both look now and then, as the real ones do: until then the pod answers by what it has.
    """

    def __init__(self, name, release, workspace, folder: Path):
        self.name, self.folder, self.loaded = name, folder, []
        self.files = AdapterFiles(release, workspace, folder, name)
        self.blind = False
        """Whether it cannot reach the store."""
        self.problem = None
        """What its sidecar logged last."""
        self._clock = workspace.clock
        self._looked = self._clock.monotonic()
        self.files.look(starts=True)
        self.adapters = LiveAdapters(
            {}, folder, lambda adapter: self.loaded.append(adapter.name), print, workspace.clock.monotonic
        )

    def look(self):
        if self._clock.monotonic() < self._looked + LOOK_S:
            return
        self._looked = self._clock.monotonic()
        if not self.blind:
            try:
                self.files.look()
            except PipelineError as error:
                self.problem = error
        self.adapters.look()

    def answer(self, lora):
        self.look()
        try:
            adapter = chosen(lora, self.adapters)
        except RefusedError as error:
            raise InputError(str(error)) from error
        if adapter is None:
            return "Four."
        return f"rank {json.loads((adapter.folder / 'adapter_config.json').read_text())['r']}"

    @property
    def listed(self):
        return json.loads((self.folder / FILE).read_text())["listed"]


class FollowingPods:
    """See tasks.adapters.load.served_traffic."""

    def __init__(self, release, workspace, folder: Path, count=2):
        self._of = release, workspace
        self._folder = folder
        self.ready = {}
        self.asked = []
        self.watching = lambda pods: None
        """Called at each question, after every pod whose time it was has looked."""
        for number in range(count):
            self.start(f"{release.id}-{number}")

    def start(self, name):
        self.ready[name] = FollowingPod(name, *self._of, self._folder / name)

    def pods(self, labels, ports):
        return {name: ServiceAddress(name, ports) for name in self.ready}

    def ask(self, address, request, timeout_s):
        self.asked.append((address.host, request.lora))
        for pod in self.ready.values():
            pod.look()
        self.watching(self)
        if address.host not in self.ready:
            raise UnavailableError(f"{address.host} does not answer")
        return self.ready[address.host].answer(request.lora), 0.01

    @property
    def names(self):
        """What each pod answers to, of the names that people know."""
        return [sorted(name for name in pod.adapters if "@" not in name) for pod in self.ready.values()]
