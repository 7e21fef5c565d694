"""The model over vLLM loads the adapters that a file beside it names, while it runs."""

import json

import pytest
from live_adapters import AGAIN_S, FILE, LiveAdapters

from tests.fakes.clock import ManualClock

KEY, OTHER = "a" * 64, "b" * 64
MARK = "0" * 16


class Server:
    """One life of a server over the folder; `fails` names adapters that the runtime cannot load."""

    def __init__(self, folder, **labels):
        self.folder, self.clock, self.loads, self.fails = folder, ManualClock(), [], set()
        self.write(labels)
        self.start()

    def start(self):
        self.adapters = LiveAdapters({}, self.folder, self._load, lambda _: None, self.clock.monotonic)

    def write(self, labels):
        (self.folder / FILE).write_text(json.dumps({"labels": labels}))

    def _load(self, adapter):
        self.loads.append(adapter.name)
        if adapter.name in self.fails:
            raise RuntimeError("CUDA out of memory")


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def test_a_load_that_failed_is_tried_again_after_a_pause_until_it_succeeds(server):
    version = f"polite@{KEY[:12]}"
    server.fails = {version}
    server.write({"polite": KEY, version: KEY})
    for _ in range(3):
        server.adapters.look()
    assert (list(server.adapters), server.loads) == ([], [version])

    server.fails.clear()
    server.clock.sleep(AGAIN_S)
    server.adapters.look()
    assert list(server.adapters) == ["polite", version]

    server.clock.sleep(AGAIN_S)
    server.adapters.look()
    assert server.loads == [version] * 2


def test_a_server_that_starts_again_never_loads_what_was_on_trial_but_takes_the_next_trial(server):
    server.write({"polite": KEY, f"terse@{MARK}": OTHER})
    server.adapters.look()
    server.start()
    server.loads.clear()

    for _ in range(3):
        server.clock.sleep(AGAIN_S)
        server.adapters.look()
    assert (list(server.adapters), server.loads) == (["polite"], [])

    again = f"terse@{MARK[1:]}1"
    server.write({"polite": KEY, again: OTHER})
    server.adapters.look()
    assert list(server.adapters) == ["polite", again]
