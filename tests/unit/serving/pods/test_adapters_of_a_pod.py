"""One pod follows the adapters of its release: what it brings, tells its processes and keeps."""

import json
import logging
from dataclasses import replace

import pytest

from slipway.tasks.adapters.store.object_store import DeniedError
from slipway.tasks.contracts.base import sha256_of
from slipway.tasks.contracts.errors import DigestMismatchError
from slipway.tasks.contracts.stored.adapters import AdapterEntry, Adapters, AdapterSet, Trial
from slipway.tasks.serving.pod.adapter_files import AGAIN_S, FILE, KEPT_S, AdapterFiles, follow
from tests.fakes.clock import ManualClock
from tests.fakes.documents.rollouts import released
from tests.fakes.kube.cluster import KilledError, in_memory
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fixtures.adapters import adapter_files

MARK = "0" * 16
NOW = ManualClock().now()


class LosingStore(MemoryObjectStore):
    """A store that refuses what lies at URIs with one of the endings."""

    def __init__(self):
        super().__init__()
        self.refused = set()
        self.hides = False
        """Whether it refuses what does not exist, as S3 does where nothing may be listed."""

    def read_with_etag(self, uri):
        if uri.endswith(tuple(self.refused)) or (self.hides and uri not in self.objects):
            raise DeniedError(f"the credentials for {uri} are rejected", found="403")
        return super().read_with_etag(uri)


class EndingClock(ManualClock):
    """Ends the process at the n-th pause; `at_pause` is called with the number of each."""

    def __init__(self, pauses, at_pause=lambda _: None):
        super().__init__()
        self._pauses, self._at_pause = pauses, at_pause

    def sleep(self, seconds):
        super().sleep(seconds)
        self._at_pause(len(self.slept))
        if len(self.slept) == self._pauses:
            raise KilledError("the pod ends")


class Pod:
    """The folder of one pod, and processes that look after it."""

    def __init__(self, folder):
        self.store = LosingStore()
        self.workspace = in_memory(folder / "scratch", store=self.store)
        self.release = released(self.workspace, 1)
        self.release_uri = self.workspace.layout.release("demo", self.release.id)
        self.folder = folder / "adapters"
        self._files = folder / "files"

    def process(self):
        return AdapterFiles(self.release, self.workspace, self.folder, "pod-0")

    def stored(self, name, rank):
        """An adapter whose artifact is in the store."""
        folder = self._files / f"{name}-{rank}"
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in adapter_files(rank).items():
            (folder / file).write_bytes(content)
        key = sha256_of([name, rank])
        self.workspace.artifacts.store("adapter", key, folder, inputs={}, producer={}, metrics={}, seconds=1.0)
        return AdapterEntry(name=name, repo=f"org/{name}", revision="main", commit="c" * 40, key=key, rank=rank)

    def trial(self, *entries, pod=None):
        return Trial(adapters=entries, run="run", mark=MARK, pod=pod)

    def write(self, *sets, trial=None):
        """The document: what names mean, and what they meant before."""
        kept = tuple(AdapterSet(adapters=each, event="loaded", run="run", at=NOW) for each in sets)
        listed = tuple(entry.name for entry in kept[0].adapters) if kept else ()
        document = Adapters(release_id=self.release.id, sets=kept, listed=listed, trial=trial)
        uri = self.workspace.layout.adapters("demo", self.release.id)
        self.store.put_bytes(uri, document.model_dump_json().encode())

    def forget(self, entry):
        """What retention does once nothing that it knows of needs the adapter."""
        self.store.delete(
            [each.uri for each in self.store.list(f"{self.workspace.layout.artifact('adapter', entry.key)}/")]
        )

    @property
    def told(self):
        return json.loads((self.folder / FILE).read_text())

    @property
    def folders(self):
        return {each.name for each in self.folder.iterdir() if each.is_dir()}


@pytest.fixture
def pod(tmp_path):
    return Pod(tmp_path)


def test_a_process_that_starts_again_keeps_adapters_while_the_store_refuses_its_credentials(pod):
    polite = pod.stored("polite", 4)
    pod.write([polite])
    pod.process().look()
    before = pod.told
    pod.store.refused = {"/adapters.json"}

    with pytest.raises(DeniedError):
        pod.process().look()

    assert pod.told == before
    assert pod.folders == {polite.key}


def test_a_pod_without_adapters_looks_on_quietly_until_there_are_some(pod, caplog):
    caplog.set_level(logging.WARNING)
    pod.process().look()
    again = pod.process()
    again.look()
    assert (pod.told["labels"], caplog.messages) == ({}, [])

    pod.write([pod.stored("polite", 4)])
    again.look()
    assert pod.told["names"] == ["polite"]


def test_a_container_that_starts_while_the_store_is_away_goes_on_looking(pod):
    pod.process().look()
    pod.store.refused = {"/release.json", "/adapters.json"}
    pod.write([pod.stored("polite", 4)])
    clock = EndingClock(3, lambda pauses: pod.store.refused.clear() if pauses == 2 else None)

    with pytest.raises(KilledError):
        follow(pod.release_uri, replace(pod.workspace, clock=clock), pod.folder, "pod-0")

    assert pod.told["names"] == ["polite"]


@pytest.mark.parametrize("hides", [False, True])
def test_a_pod_starts_without_the_adapters_that_retention_removed_and_takes_them_once_they_are_there(hides, pod):
    polite, terse = pod.stored("polite", 4), pod.stored("terse", 8)
    pod.write([polite, terse])
    pod.forget(polite)
    pod.store.hides = hides

    process = pod.process()
    process.look()
    assert (pod.told["names"], pod.told["listed"], pod.folders) == (["terse"], ["terse"], {terse.key})
    assert set(pod.told["labels"]) == {"terse", terse.version}

    pod.store.hides = False
    pod.stored("polite", 4)
    process.look()
    assert pod.told["listed"] == ["polite", "terse"]


def test_what_is_on_trial_and_cannot_be_brought_keeps_no_pod_from_starting_or_following(pod):
    polite, terse, bad = pod.stored("polite", 4), pod.stored("terse", 8), pod.stored("bad", 8)
    uri = f"{pod.workspace.layout.artifact('adapter', bad.key)}/adapter_model.safetensors"
    pod.store.objects[uri] = (b"other bytes", None)
    pod.write([polite], trial=pod.trial(bad))

    process = pod.process()
    process.look(starts=True)
    assert pod.told["names"] == ["polite"]

    pod.write([polite, terse], trial=pod.trial(bad))
    with pytest.raises(DigestMismatchError):
        process.look()
    assert pod.told["listed"] == ["polite", "terse"]
    assert f"bad@{MARK}" not in pod.told["labels"]


def test_a_damaged_adapter_keeps_no_pod_from_starting_nor_from_following_the_rest(pod):
    polite, bad, terse = pod.stored("polite", 4), pod.stored("bad", 8), pod.stored("terse", 8)
    uri = f"{pod.workspace.layout.artifact('adapter', bad.key)}/adapter_model.safetensors"
    right = pod.store.objects[uri]
    pod.store.objects[uri] = (b"other bytes", None)
    pod.write([bad, polite], trial=pod.trial(terse))

    pod.process().look(starts=True)
    assert set(pod.told["labels"]) == {"polite", polite.version}

    process = pod.process()
    with pytest.raises(DigestMismatchError):
        process.look()
    assert set(pod.told["labels"]) == {"polite", polite.version, f"terse@{MARK}"}

    pod.store.objects[uri] = right
    process.look()
    assert "bad" not in pod.told["labels"]  # it is fetched whole each time
    pod.workspace.clock.sleep(AGAIN_S)
    process.look()
    assert {"bad", bad.version} < set(pod.told["labels"])


def test_a_pod_starts_with_what_names_mean_and_takes_what_is_on_trial_afterwards(pod):
    polite, terse = pod.stored("polite", 4), pod.stored("terse", 8)
    pod.write([polite], trial=pod.trial(terse))
    process = pod.process()

    process.look(starts=True)
    assert set(pod.told["labels"]) == {"polite", polite.version}

    process.look()
    assert set(pod.told["labels"]) == {"polite", polite.version, f"terse@{MARK}"}


def test_a_process_that_starts_again_on_trial_never_takes_back_what_it_told(pod):
    polite, terse = pod.stored("polite", 4), pod.stored("terse", 8)
    pod.write([polite], trial=pod.trial(terse))
    pod.process().look()
    before = pod.told
    pod.forget(terse)

    pod.process().look()

    assert pod.told == before


def test_files_that_nobody_needs_stay_for_as_long_as_a_request_may_hold_them(pod):
    polite, other = pod.stored("polite", 4), pod.stored("polite", 8)
    pod.write([other], [polite])
    process = pod.process()
    process.look()
    pod.write([polite])
    clock = pod.workspace.clock
    clock.sleep(2 * KEPT_S)

    process.look()
    clock.sleep(KEPT_S)
    process.look()
    assert pod.folders == {polite.key, other.key}

    clock.sleep(1)
    process.look()
    assert pod.folders == {polite.key}


def test_files_that_are_needed_again_stay(pod):
    polite, other = pod.stored("polite", 4), pod.stored("polite", 8)
    process = pod.process()
    for served in (polite, other, polite, other):
        pod.write([served])
        process.look()
        pod.workspace.clock.sleep(KEPT_S / 2 + 1)
    process.look()
    assert pod.folders == {polite.key, other.key}
