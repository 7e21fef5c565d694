"""Artifacts in the object store: written file by file with the manifest last, and verified whenever they are read.

An artifact exists once its manifest does. Until then its files are nobody's, so a writer that was killed leaves nothing
to clean up, and the next one keeps what is right already.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tasks.adapters.clock import Clock
from tasks.adapters.object_store import LostRaceError, NotFoundError, ObjectStore
from tasks.adapters.transfer import FILES_AT_ONCE, Count, transfer
from tasks.contracts.artifact import MANIFEST, File, Layout, Manifest, Stage
from tasks.contracts.base import canonical_json, read_contract, read_contract_json
from tasks.contracts.errors import DigestMismatchError, InputError

log = logging.getLogger(__name__)

READ_BYTES = 2**20
PARTIAL = ".partial"
MANIFEST_ATTEMPTS = 5
Work = Callable[[File, Count], None]


class ArtifactStore:
    """Finds, reads, writes and composes artifacts. Safe to run by several processes at once, on the same key too."""

    def __init__(self, store: ObjectStore, layout: Layout, clock: Clock) -> None:
        """`layout` says where artifacts lie in `store`."""
        self._store, self._layout, self._clock = store, layout, clock

    def find(self, stage: Stage, key: str) -> Manifest | None:
        """The artifact's manifest; None: it does not exist."""
        uri = self._uri(stage, key, MANIFEST)
        found = self._store.read_with_etag(uri)
        return None if found is None else read_contract_json(Manifest, found[0], uri)

    def fetch(self, stage: Stage, key: str, target: Path, *, only: str | None = None) -> Manifest:
        """Bring every file of an artifact under `target`, or the one that is named, verified.

        Files that are right there already are kept.

        Raises:
            InputError: there is no such artifact.
            DigestMismatchError: stored bytes are not what the manifest says; they are not left in `target`.
        """
        manifest = self.find(stage, key)
        if manifest is None:
            raise InputError(
                f"there is no artifact {stage} {key[:12]}: {self._uri(stage, key, MANIFEST)} does not exist. "
                f"Run {stage} first; if it was deleted, run plan again."
            )

        def bring(file: File, count: Count) -> None:
            path = target / file.path
            if path.is_file() and path.stat().st_size == file.size_bytes and sha256_of_file(path) == file.sha256:
                count(file.size_bytes)
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}{PARTIAL}")
            try:
                self._store.get_file(self._uri(stage, key, file.path), partial, count)
                self._verify(partial, file, stage, key)
                partial.replace(path)
            except NotFoundError as error:
                raise InputError(f"{error} {self._damaged(stage, key)}") from error
            finally:
                partial.unlink(missing_ok=True)

        files = tuple(file for file in manifest.files if only in (None, file.path))
        transfer(f"fetch {stage} {key[:12]}", files, bring, self._clock)
        return manifest

    def store(
        self,
        stage: Stage,
        key: str,
        source: Path,
        *,
        inputs: dict[Stage, str],
        producer: dict[str, str],
        metrics: dict[str, Any],
        seconds: float,
    ) -> Manifest:
        """Store every file under `source` as the artifact `key`; return what is stored in the end.

        Raises:
            InputError: a file's name is not allowed in an artifact, or there is no file; nothing was stored then.
        """
        paths = sorted(path for path in source.rglob("*") if path.is_file())
        if not paths:
            raise InputError(f"{stage} made no files, expected at least one. Nothing was stored.")
        files = _described(source, paths)
        manifest = self._manifest(stage, key, files, inputs, producer, metrics, seconds)

        def put(file: File, count: Count) -> None:
            uri = self._uri(stage, key, file.path)
            if self._is_stored(uri, file):
                count(file.size_bytes)
                return
            self._store.put_file(source / file.path, uri, count, sha256=file.sha256)

        return self._commit(manifest, put)

    def compose(
        self,
        stage: Stage,
        key: str,
        parts: Sequence[tuple[Manifest, str]],
        *,
        inputs: dict[Stage, str],
        producer: dict[str, str],
        metrics: dict[str, Any],
    ) -> Manifest:
        """Store an artifact of other artifacts' files, each part's under its sub-path (empty: at the top).

        The object store copies; no byte passes through this process.

        Raises:
            InputError: two parts have a file of the same name, or a part's file is gone.
            DigestMismatchError: a copy is not what the part's manifest says.
        """
        began = self._clock.monotonic()
        origins: dict[str, tuple[Manifest, File]] = {}
        for part, folder in parts:
            for file in part.files:
                path = f"{folder}/{file.path}" if folder else file.path
                if path in origins:
                    raise InputError(
                        f"{stage} {key[:12]}: {origins[path][0].stage} and {part.stage} both have {path}. "
                        "One of the two has to name it otherwise."
                    )
                origins[path] = part, file
        files = tuple(file.model_copy(update={"path": path}) for path, (_, file) in sorted(origins.items()))
        manifest = self._manifest(stage, key, files, inputs, producer, metrics, 0.0)

        def copy(file: File, count: Count) -> None:
            part, origin = origins[file.path]
            source, target = self._uri(part.stage, part.key, origin.path), self._uri(stage, key, file.path)
            if not self._is_stored(target, file):
                self._store.copy(source, target)
                self._verify_copy(target, file, part)
            count(file.size_bytes)

        return self._commit(manifest, copy, began)

    def _commit(self, manifest: Manifest, work: Work, began: float | None = None) -> Manifest:
        """Bring the files there, then the manifest, which tells the time since `began` where it is given.

        A process that loses the race for the manifest to one that made the same files is content with it. If the other
        made different ones, either may have overwritten some of the other's, so the loser, after whom nobody of the two
        writes, makes all of them its own and replaces the manifest.
        """
        uri = self._uri(manifest.stage, manifest.key, MANIFEST)
        what, etag = f"store {manifest.stage} {manifest.key[:12]}", None
        for _ in range(MANIFEST_ATTEMPTS):
            transfer(what, manifest.files, work, self._clock)
            if began is not None:
                manifest = manifest.model_copy(update={"seconds": self._clock.monotonic() - began})
            try:
                self._store.put_if(uri, canonical_json(manifest.model_dump(mode="json")), etag=etag)
            except LostRaceError:
                found = self._store.read_with_etag(uri)
                if found is None:
                    etag = None
                    continue
                winner, etag = read_contract_json(Manifest, found[0], uri), found[1]
                if winner.files == manifest.files:
                    log.info("%s was stored by another process meanwhile", uri)
                    return winner
                log.warning("%s was stored by another process with other bytes; they are replaced", uri)
            else:
                return manifest
        raise LostRaceError(f"{uri}: {MANIFEST_ATTEMPTS} times another process stored other bytes. Stop one of them.")

    def _is_stored(self, uri: str, file: File) -> bool:
        stored = self._store.describe(uri)
        return stored is not None and (stored.size_bytes, stored.sha256) == (file.size_bytes, file.sha256)

    def _verify(self, path: Path, file: File, stage: Stage, key: str) -> None:
        actual = sha256_of_file(path)
        if actual != file.sha256:
            uri = self._uri(stage, key, file.path)
            raise DigestMismatchError(uri, expected=file.sha256, actual=actual, do=self._damaged(stage, key))

    def _verify_copy(self, uri: str, file: File, part: Manifest) -> None:
        copied = self._store.describe(uri)
        actual = (copied.sha256 or file.sha256) if copied and copied.size_bytes == file.size_bytes else "of other size"
        if actual != file.sha256:
            do = self._damaged(part.stage, part.key)
            raise DigestMismatchError(uri, expected=file.sha256, actual=actual, do=do)

    def _damaged(self, stage: Stage, key: str) -> str:
        return f"The artifact is damaged: delete {self._uri(stage, key, MANIFEST)} and run the release again."

    def _manifest(
        self,
        stage: Stage,
        key: str,
        files: Iterable[File],
        inputs: dict[Stage, str],
        producer: dict[str, str],
        metrics: dict[str, Any],
        seconds: float,
    ) -> Manifest:
        return Manifest(
            stage=stage,
            key=key,
            files=tuple(files),
            inputs=inputs,
            producer=producer,
            metrics=metrics,
            created_at=self._clock.now(),
            seconds=seconds,
        )

    def _uri(self, stage: Stage, key: str, path: str) -> str:
        return f"{self._layout.artifact(stage, key)}/{path}"


def sha256_of_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _described(source: Path, paths: Sequence[Path]) -> tuple[File, ...]:
    """The files as a manifest names them. Names are checked before any byte is hashed."""
    names = [path.relative_to(source).as_posix() for path in paths]
    for name in names:
        if name == MANIFEST:
            raise InputError(f"a stage made a file named {MANIFEST}, which is the artifact's own. Name it otherwise.")
        read_contract(File, {"path": name, "sha256": "0" * 64, "size_bytes": 0}, f"file {name!r} of an artifact")
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        digests = list(pool.map(sha256_of_file, paths))
    return tuple(
        File(path=name, sha256=digest, size_bytes=path.stat().st_size)
        for name, digest, path in zip(names, digests, paths, strict=True)
    )
