"""The files that a stage's artifacts have in the object store: what lies there need not be transferred again."""

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from slipway.tasks.adapters.store.object_store import ObjectStore, StoredObject
from slipway.tasks.adapters.store.transfer import FILES_AT_ONCE
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.artifact import MANIFEST, File, Manifest

log = logging.getLogger(__name__)

ARTIFACTS_SEARCHED, OBJECTS_LISTED = 500, 20_000
"""How many artifacts are searched for a file that need not be transferred, and among how many objects they are looked
for: 20 lists and 500 reads take seconds, not minutes."""
ARTIFACTS_GLANCED_AT, OBJECTS_GLANCED_AT = 50, 1_000
"""The same where a person waits for an estimate: a listing and 50 reads take a fraction of a second."""


class StageFiles:
    """Finds files of a stage's artifacts. Reads, and never writes."""

    def __init__(self, store: ObjectStore, folder: str, find: Callable[[str], Manifest | None]) -> None:
        """`folder` is the prefix of the stage's artifacts and ends in a slash; `find` gives a manifest by its key."""
        self._store, self._folder, self._find = store, folder, find

    def by_digest(self, but: str) -> dict[tuple[str, int], tuple[str, File]]:
        """The files of the newest artifacts besides `but` with their addresses, by SHA-256 and size."""
        keys = self._newest(islice(self._store.list(self._folder), OBJECTS_LISTED), but)
        return {
            (file.sha256, file.size_bytes): (f"{self._folder}{key}/{file.path}", file)
            for key, manifest in reversed(self._manifests(keys).items())
            for file in (manifest.files if manifest else ())
        }

    def from_one_listing(self, but: str) -> tuple[File, ...] | None:
        """The files of all artifacts besides `but`; None where finding out would take seconds."""
        listed = list(islice(self._store.list(self._folder), OBJECTS_GLANCED_AT + 1))
        keys = self._newest(listed, but)
        if len(listed) > OBJECTS_GLANCED_AT or len(keys) > ARTIFACTS_GLANCED_AT:
            return None
        manifests = self._manifests(keys).values()
        return tuple(file for manifest in manifests if manifest for file in manifest.files)

    def lying_in(self, key: str) -> dict[str, int]:
        """Sizes by path of what lies in an artifact's place, whether or not the artifact exists."""
        folder = f"{self._folder}{key}/"
        return {
            path: item.size_bytes
            for item in self._store.list(folder)
            if (path := item.uri.removeprefix(folder)) != MANIFEST
        }

    def _newest(self, listed: Iterable[StoredObject], but: str) -> list[str]:
        """Keys of at most ARTIFACTS_SEARCHED artifacts whose manifests were listed, the newest first."""
        manifests = {
            key: item.modified_at
            for item in listed
            for key, _, name in [item.uri.removeprefix(self._folder).partition("/")]
            if name == MANIFEST and key != but
        }
        return sorted(manifests, key=manifests.__getitem__, reverse=True)[:ARTIFACTS_SEARCHED]

    def _manifests(self, keys: Sequence[str]) -> dict[str, Manifest | None]:
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            return dict(zip(keys, pool.map(self._readable, keys), strict=True))

    def _readable(self, key: str) -> Manifest | None:
        """An artifact's manifest; None when it does not exist, or is damaged or of another version of Slipway."""
        try:
            return self._find(key)
        except InputError as error:
            log.warning("files of %s%s are not looked for: %s", self._folder, key[:12], error)
            return None
