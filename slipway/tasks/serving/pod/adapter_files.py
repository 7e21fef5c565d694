"""The adapters of a live release in a serving pod: their files, and a document that tells its processes what is there.

The init container looks once, so that the server starts with what its neighbours have. Another container goes on
looking. What the store cannot tell leaves everything as it is.
"""

import json
import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from slipway.tasks.adapters.store.object_store import DeniedError
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.base import canonical_json, read_contract_json
from slipway.tasks.contracts.errors import DigestMismatchError, InputError
from slipway.tasks.contracts.spec_fields import MAX_REQUEST_S
from slipway.tasks.contracts.stored.adapters import KEY_DIGITS, Adapters
from slipway.tasks.contracts.stored.artifact import ADAPTER, Manifest
from slipway.tasks.contracts.stored.release import Release

FILE = "adapters.json"
"""Read by model_repository_templates/vllm/model/1/live_adapters.py and by OpenAI's API."""
LOOK_S = 2.0
"""Within this time a change of the document is seen, where the store answers."""

AGAIN_S = 60.0
"""How long an adapter whose bytes were wrong is not fetched again: it is fetched whole before that is known."""
KEPT_S = MAX_REQUEST_S
"""How long a folder stays that nobody needs any more: a request that began with an adapter keeps it, and vLLM reads the
folder again where others took its place meanwhile."""

log = logging.getLogger(__name__)


@dataclass
class AdapterFiles:
    """The files of one pod. `folder` has the document, and each adapter in a folder with its key as name."""

    release: Release
    workspace: Workspace
    folder: Path
    pod: str
    _seen: bytes | None = field(default=None)
    _here: set[str] = field(default_factory=set)
    """Keys of the adapters that this process has brought."""
    _missing: set[str] = field(default_factory=set)
    _needed: frozenset[str] = frozenset()
    _again_at: dict[str, float] = field(default_factory=dict)
    """When one whose bytes were wrong is asked for again."""
    _unneeded: dict[str, float] = field(default_factory=dict)
    """Since when a folder is not needed, by its name."""

    def look(self, *, starts: bool = False) -> None:
        """Bring the files that are missing, then change what names mean, then remove what was not needed for long.

        What is on trial comes last, and is not brought where the pod `starts`: it may be what cannot be brought.

        An adapter that the store does not have is left out, and asked for again at the next look: a release that comes
        back may find that retention has removed its adapters, which its model does not need. A pod that `starts` leaves
        out any that is wrong, as after its key was rotated.

        Raises:
            InputError: no accepted key signed an adapter for this release, or it is damaged.
            UnavailableError: the object store does not answer.
        """
        data = self._read()
        if data is None:
            return
        if data != self._seen:
            self._follow(data, starts=starts)
        if not starts:
            self._remove()

    def _follow(self, data: bytes, *, starts: bool) -> None:
        document = read_contract_json(Adapters, data, FILE) if data else Adapters(release_id=self.release.id)
        if not starts:  # what another process of this pod has brought and told is neither brought nor taken back again
            self._here |= set(self._told().values())
        current = {entry.key for entry in document.current}
        problems = self._bring(current)
        self._tell(document)
        if starts:
            for error in problems:
                log.warning("an adapter is left out until it is right: %s", error)
            return
        wanted = set(document.labels(self.pod).values())
        problems += self._bring(wanted - current)
        self._tell(document)
        self._needed = document.needed
        if problems:
            raise problems[0]
        if wanted <= self._here:
            self._seen = data
            log.info("adapters: %s", ", ".join(entry.words for entry in document.current) or "none")

    def _remove(self) -> None:
        now = self.workspace.clock.monotonic()
        folders = {each.name for each in self.folder.iterdir() if each.is_dir()}
        self._unneeded = {name: self._unneeded.get(name, now) for name in folders - self._needed}
        for name in [name for name, since in self._unneeded.items() if now - since > KEPT_S]:
            shutil.rmtree(self.folder / name)
            self._here.discard(name)

    def _read(self) -> bytes | None:
        """The document; empty where there is none, None where that cannot be told.

        S3 answers a pod 403 for an object that does not exist. The same credentials have read the release, so at the
        first look it is that. Later a document may have been refused, and what the folder has stays.
        """
        uri = self.workspace.layout.adapters(self.release.spec.name, self.release.id)
        try:
            return self.workspace.store.read_bytes(uri)
        except InputError:
            if not (self.folder / FILE).exists():
                return b""
            if self._told():
                raise
            return None

    def _bring(self, keys: Iterable[str]) -> list[InputError]:
        """Bring adapters; what is wrong with those that are left out."""
        problems = []
        for key in sorted(set(keys) - self._here):
            try:
                self._bring_one(key)
            except InputError as error:
                problems.append(error)
                if isinstance(error, DigestMismatchError):
                    self._again_at[key] = self.workspace.clock.monotonic() + AGAIN_S
        return problems

    def _bring_one(self, key: str) -> None:
        if self.workspace.clock.monotonic() < self._again_at.get(key, 0.0):
            return
        if self._is_stored(key):
            self.workspace.artifacts.fetch(ADAPTER, key, self.folder / key, check=self._check)
            self._here.add(key)
            self._missing.discard(key)
        elif key not in self._missing:
            log.warning("adapter %s is not in the store, and is left out until it is", key[:KEY_DIGITS])
            self._missing.add(key)

    def _is_stored(self, key: str) -> bool:
        try:
            return self.workspace.artifacts.find(ADAPTER, key) is not None
        except DeniedError:  # as in _read
            return False

    def _check(self, manifest: Manifest) -> None:
        signing, signatures = self.workspace.site.signing, self.workspace.signatures
        if signing and signing.verifies and signatures is not None:
            signatures.verify(self.release.id, manifest)

    def _told(self) -> dict[str, str]:
        """The labels that the folder's document has, with the keys that they mean."""
        written = self.folder / FILE
        return dict(json.loads(written.read_bytes())["labels"]) if written.exists() else {}

    def _tell(self, document: Adapters) -> None:
        """Write what of the document is here."""
        labels = {label: key for label, key in document.labels(self.pod).items() if key in self._here}
        names, listed = ([name for name in each if name in labels] for each in (document.names, document.listed))
        self._write({"labels": labels, "names": names, "listed": listed})

    def _write(self, document: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".{FILE}"
        partial.write_bytes(canonical_json(document))
        partial.replace(self.folder / FILE)


def follow(release_uri: str, workspace: Workspace, folder: Path, pod: str) -> NoReturn:
    """Look until the process is told to end. A pod whose container ends is not ready, whatever it serves."""
    files = None
    while True:
        try:
            files = files or AdapterFiles(workspace.documents.release(release_uri), workspace, folder, pod)
            files.look()
        except Exception as error:  # noqa: BLE001 - a store that is away, a disk that is full: both may end
            log.warning("adapters stay as they are: %s", error)
        workspace.clock.sleep(LOOK_S)
