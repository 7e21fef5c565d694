"""Artifacts in the object store: written file by file with the manifest last, and verified whenever they are read.

An artifact exists once its manifest does. Until then its files belong to none: a writer that was killed leaves nothing
that the next one could not use, and that one keeps the files that are correct already. While it is written, a claim is
in the manifest's place; while retention deletes it, a removal (heads.py).
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.disk import disk_errors
from slipway.tasks.adapters.store.digests import Digested, digests_of_file
from slipway.tasks.adapters.store.heads import TAKEOVER_S, Heads, exists
from slipway.tasks.adapters.store.object_store import (
    ByteSource,
    LostRaceError,
    NotFoundError,
    ObjectStore,
    StoredObject,
)
from slipway.tasks.adapters.store.parts import PART_BYTES
from slipway.tasks.adapters.store.stage_files import StageFiles
from slipway.tasks.adapters.store.transfer import FILES_AT_ONCE, Count, Sized, transfer
from slipway.tasks.contracts.base import canonical_json, check_address, read_contract, read_contract_json
from slipway.tasks.contracts.errors import DigestMismatchError, InputError, UnavailableError
from slipway.tasks.contracts.stored.artifact import MANIFEST, File, Layout, Manifest, Stage

log = logging.getLogger(__name__)

PARTIAL = ".partial"
MANIFEST_ATTEMPTS = 5
DOWNLOADED_BYTES = "downloaded_bytes"
"""Metric of an artifact whose files came from elsewhere: the bytes that came, without files that the store had."""
S = TypeVar("S", bound=Sized)
Lying = Mapping[str, int]
"""Sizes by path of the files that an earlier try left in an artifact's place."""
Work = Callable[[Lying, S, Count], File]


@dataclass(frozen=True)
class Incoming:
    """A file that lies elsewhere and is going to be stored."""

    path: str
    size_bytes: int
    sha256: str | None
    """None if it is not known before the bytes are read."""
    read_into: Callable[[Callable[[ByteSource], File], Count], File]
    """Gives the bytes to a function and returns what that returns."""


class ArtifactStore:
    """Finds, reads, writes and composes artifacts. Safe to run by several processes at once, on the same key too."""

    def __init__(self, store: ObjectStore, layout: Layout, clock: Clock) -> None:
        """`layout` says where artifacts lie in `store`."""
        self._store, self._layout, self._clock = store, layout, clock
        self._heads = Heads(store, clock)

    def find(self, stage: Stage, key: str) -> Manifest | None:
        """The artifact's manifest; None when it does not exist."""
        stored = self._find(self._uri(stage, key, MANIFEST))
        return stored[0] if stored else None

    def use(self, stage: Stage, key: str) -> Manifest | None:
        """Find an artifact that a release is going to rely on, and record that in its manifest.

        Write release.json first. Retention looks at manifests, then at releases, and then deletes an artifact only if
        its manifest is still the one that it looked at. So it sees the release or fails, or the answer here is None
        and the artifact is made again.
        """
        uri, before = self._uri(stage, key, MANIFEST), None
        for _ in range(MANIFEST_ATTEMPTS):
            stored = self._find(uri)
            if stored is None:
                return None
            if before not in {None, stored[1]}:  # somebody else's use counts: it also came after this release's record
                return stored[0]
            before = stored[1]
            manifest = stored[0].model_copy(update={"used_at": self._clock.now()})
            try:
                self._store.put_if(uri, canonical_json(manifest.model_dump(mode="json")), etag=before)
            except LostRaceError:
                continue
            return manifest
        raise LostRaceError(f"{uri} is written by others all the time", remedy="Run the step again.")

    def _find(self, uri: str) -> tuple[Manifest, str] | None:
        document = self._store.read_with_etag(uri)
        if document is None or not exists(document[0], uri):
            return None
        manifest = read_contract_json(Manifest, document[0], uri)
        check_address(uri, self._uri(manifest.stage, manifest.key, MANIFEST))
        return manifest, document[1]

    def fetch(
        self,
        stage: Stage,
        key: str,
        target: Path,
        *,
        only: str | None = None,
        check: Callable[[Manifest], object] = lambda _: None,
    ) -> Manifest:
        """Download every file of an artifact to `target`, or only the file `only`, verified.

        Files that are correct there already are kept. `check` may refuse the manifest before any file is fetched.

        Raises:
            InputError: there is no such artifact.
            DigestMismatchError: stored bytes differ from the manifest; they are not left in `target`.
        """
        manifest = self.find(stage, key)
        if manifest is None:
            raise InputError(
                f"artifact {stage} {key[:12]} does not exist",
                expected=self._uri(stage, key, MANIFEST),
                remedy=f"Run {stage} first; if it was deleted, run plan again.",
            )

        check(manifest)
        manifest_uri = self._uri(stage, key, MANIFEST)

        def bring(file: File, count: Count) -> None:
            path = target / file.path
            with disk_errors(file.path):
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.is_file() and path.stat().st_size == file.size_bytes and _has_digest(path, file):
                    count(file.size_bytes)
                    return
                partial = path.with_name(f".{path.name}{PARTIAL}")
                is_continued = partial.exists()
            try:
                self._get(
                    self._uri(stage, key, file.path), file, partial, count, manifest_uri, is_continued=is_continued
                )
            except NotFoundError as error:
                raise InputError(error.what, remedy=_restore(manifest_uri)) from error
            with disk_errors(file.path):
                partial.replace(path)

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
            InputError: a file has a name that no artifact may have, or there is no file. Nothing is stored then.
        """
        paths = sorted(path for path in source.rglob("*") if path.is_file())
        if not paths:
            raise InputError(f"{stage} made no files", expected="at least one", remedy="See the step's log.")
        files = _described(source, paths)
        manifest = self._manifest(stage, key, files, inputs, producer, metrics, seconds)

        def put(lying: Lying, file: File, count: Count) -> File:
            uri = self._uri(stage, key, file.path)
            if self._is_stored(uri, file, lying):
                count(file.size_bytes)
            else:
                self._store.put_file(source / file.path, uri, count, sha256=file.sha256)
            return file

        return self._commit(manifest, files, put)

    def stream(
        self,
        stage: Stage,
        key: str,
        files: Sequence[Incoming],
        *,
        what: str,
        inputs: dict[Stage, str],
        producer: dict[str, str],
        metrics: dict[str, Any],
    ) -> Manifest:
        """Store files that lie elsewhere as the artifact `key`, in one pass and without a copy on this machine's disk.

        What an earlier try of this artifact stored is kept, and what another artifact of the stage has is copied within
        the store. The manifest records the time that this took, and the bytes that came from elsewhere in that time as
        the metric `downloaded_bytes`. `what` names the transfer in the log.

        Raises:
            InputError: a file has a name that no artifact may have, or there is no file. Nothing is stored then.
            DigestMismatchError: a file's bytes are not what was announced.
        """
        began = self._clock.monotonic()
        if not files:
            raise InputError(f"{stage} made no files", expected="at least one", remedy="See the step's log.")
        for file in files:
            _check_name(file.path)
        elsewhere = self.files_of(stage).by_digest(key) if any(file.sha256 for file in files) else {}
        taken: list[int] = []

        def put(lying: Lying, file: Incoming, count: Count) -> File:
            uri = self._uri(stage, key, file.path)
            if file.sha256:
                copied_from, known = elsewhere.get((file.sha256, file.size_bytes), ("", None))
                expected = File(
                    path=file.path,
                    sha256=file.sha256,
                    blake3=known.blake3 if known else None,
                    size_bytes=file.size_bytes,
                )
                if self._is_stored(uri, expected, lying) or (
                    copied_from and self._is_copied(copied_from, uri, expected)
                ):
                    count(file.size_bytes)
                    return expected

            def take(source: ByteSource) -> File:
                digested = Digested(source)
                sha256 = self._store.put_stream(digested, uri)
                taken.append(file.size_bytes)
                return File(path=file.path, sha256=sha256, blake3=digested.blake3, size_bytes=file.size_bytes)

            return file.read_into(take, count)

        draft = self._manifest(stage, key, (), inputs, producer, metrics, 0.0)
        return self._commit(draft, files, put, began, what, measured=lambda: {DOWNLOADED_BYTES: sum(taken)})

    def files_of(self, stage: Stage) -> StageFiles:
        """The files of the stage's artifacts."""
        return StageFiles(self._store, f"{self._layout.artifacts()}{stage}/", lambda key: self.find(stage, key))

    def _is_copied(self, source_uri: str, uri: str, file: File) -> bool:
        """Copy a file within the store; False if it was deleted or written again meanwhile, or has another digest."""
        source = self._store.describe(source_uri)
        if source is None or not _is(source, file):
            return False
        try:
            self._store.copy(source, uri)
        except (NotFoundError, UnavailableError):  # deleted, or written again: it comes from elsewhere
            return False
        log.info("%s is copied from %s", file.path, source_uri)
        return True

    def compose(
        self,
        stage: Stage,
        key: str,
        parts: Sequence[tuple[Manifest, str]],
        *,
        inputs: dict[Stage, str],
        producer: dict[str, str],
        metrics: dict[str, Any],
        seal: Callable[[Manifest], object] = lambda _: None,
    ) -> Manifest:
        """Store an artifact that consists of other artifacts' files, each part's in its own folder (empty: at the top).

        The object store copies them; no byte passes through this process. `seal` is called with the manifest when all
        files are stored, before the manifest makes the artifact exist.

        Raises:
            InputError: two parts have a file of the same name, or a part's file is missing.
            DigestMismatchError: a part's file is not that of its manifest.
            UnavailableError: a part's file was written again while it was copied.
        """
        began = self._clock.monotonic()
        origins: dict[str, tuple[Manifest, File]] = {}
        for part, folder in parts:
            for file in part.files:
                path = f"{folder}/{file.path}" if folder else file.path
                if path in origins:
                    raise InputError(
                        f"{stage} {key[:12]}: {origins[path][0].stage} and {part.stage} both have {path}",
                        remedy="Rename the file in one of the two.",
                    )
                origins[path] = part, file
        files = tuple(file.model_copy(update={"path": path}) for path, (_, file) in sorted(origins.items()))
        manifest = self._manifest(stage, key, files, inputs, producer, metrics, 0.0)

        def copy(lying: Lying, file: File, count: Count) -> File:
            part, origin = origins[file.path]
            source, target = self._uri(part.stage, part.key, origin.path), self._uri(stage, key, file.path)
            if not self._is_stored(target, file, lying):
                self._store.copy(self._whole(source, file, part), target)
            count(file.size_bytes)
            return file

        return self._commit(manifest, files, copy, began, seal=seal)

    def _commit(
        self,
        draft: Manifest,
        items: Sequence[S],
        work: Work[S],
        began: float | None = None,
        what: str = "",
        *,
        seal: Callable[[Manifest], object] = lambda _: None,
        measured: Callable[[], dict[str, Any]] = dict,
    ) -> Manifest:
        """Store the files that `work` makes of the items, then the manifest with the time since `began`, if given.

        A process that loses the race for the manifest accepts the winner's if both made the same files. If they made
        different ones, either may have overwritten some of the other's; the second writer then overwrites every file
        and replaces the manifest, after which neither of the two writes.
        """
        uri = self._uri(draft.stage, draft.key, MANIFEST)
        what = what or f"store {draft.stage} {draft.key[:12]}"
        for _ in range(MANIFEST_ATTEMPTS):
            try:
                etag = self._heads.claim(uri, patience_s=TAKEOVER_S)
                move = partial(work, self.files_of(draft.stage).lying_in(draft.key))
                files = tuple(sorted(transfer(what, items, move, self._clock), key=lambda file: file.path))
                manifest = draft.model_copy(update={"files": files, "metrics": draft.metrics | measured()})
                seal(manifest)
                if winner := self._same(uri, manifest):
                    return winner
                if began is not None:
                    manifest = manifest.model_copy(update={"seconds": self._clock.monotonic() - began})
                self._store.put_if(uri, canonical_json(manifest.model_dump(mode="json")), etag=etag)
            except LostRaceError:
                continue
            return manifest
        raise LostRaceError(
            f"another process changed {uri} {MANIFEST_ATTEMPTS} times while this one stored it",
            remedy="Stop one of the two.",
        )

    def _same(self, uri: str, manifest: Manifest) -> Manifest | None:
        """The manifest that another process stored meanwhile, if it made the same files."""
        stored = self._find(uri)
        if stored is None:
            return None
        if not stored[0].has_same_files(manifest):
            log.warning("another process stored other bytes as %s; they are replaced", uri)
            return None
        winner = self.use(manifest.stage, manifest.key)
        if winner is None or not winner.has_same_files(manifest):
            return None
        log.info("another process stored %s at the same time", uri)
        return winner

    def _is_stored(self, uri: str, file: File, lying: Lying) -> bool:
        """Whether the file lies there. A large one may have come since it was listed, and is worth another look."""
        is_worth_it = file.size_bytes > PART_BYTES or lying.get(file.path) == file.size_bytes
        return is_worth_it and _is(self._store.describe(uri), file)

    def _get(self, uri: str, file: File, partial: Path, count: Count, manifest_uri: str, *, is_continued: bool) -> None:
        """Download to `partial`, which continues there after an interruption and is removed if its bytes are wrong."""
        while True:
            actual = self._store.get_file(uri, partial, file.size_bytes, count, algorithm=file.algorithm)
            if actual == file.digest:
                return
            partial.unlink(missing_ok=True)
            if actual is None or not is_continued:
                found, remedy = f"{file.algorithm}:{actual}" if actual else "another size", _restore(manifest_uri)
                raise DigestMismatchError(uri, expected=file.labelled_digest, found=found, remedy=remedy)
            log.warning("%s: what an interrupted download left is damaged, starting again", uri)
            count(-file.size_bytes)
            is_continued = False

    def _whole(self, uri: str, file: File, part: Manifest) -> StoredObject:
        """Describe a part's file, if it is the one that the part's manifest names."""
        manifest_uri = self._uri(part.stage, part.key, MANIFEST)
        source = self._store.describe(uri)
        if source is None:
            raise InputError(f"{uri} does not exist", remedy=_restore(manifest_uri))
        expected = f"sha256:{file.sha256}"
        has_size = source.size_bytes == file.size_bytes
        actual = f"sha256:{source.sha256 or file.sha256}" if has_size else "another size"
        if actual != expected:
            remedy = f"The artifact is damaged: delete {manifest_uri} and run the release again."
            raise DigestMismatchError(uri, expected=expected, found=actual, remedy=remedy)
        return source

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


def _restore(manifest_uri: str) -> str:
    """The remedy for a damaged file. An object with the right size and metadata is not stored again while it exists."""
    return (
        f"Restore the file from a version of the bucket; without one, delete it and {manifest_uri}, then run the "
        "release again, or publish it again if it is live (docs/runbook.md)."
    )


def _check_name(name: str) -> None:
    if name == MANIFEST:
        raise InputError(
            f"a stage made a file named {MANIFEST}, which is reserved for the artifact", remedy="Rename the file."
        )
    read_contract(File, {"path": name, "sha256": "0" * 64, "size_bytes": 0}, f"file {name!r} of an artifact")


def _is(stored: StoredObject | None, file: File) -> bool:
    return stored is not None and (stored.size_bytes, stored.sha256) == (file.size_bytes, file.sha256)


def _has_digest(path: Path, file: File) -> bool:
    return digests_of_file(path, file.algorithm) == (file.digest,)


def _described(source: Path, paths: Sequence[Path]) -> tuple[File, ...]:
    """Describe the files as a manifest does. Names are checked before any byte is hashed."""
    names = [path.relative_to(source).as_posix() for path in paths]
    for name in names:
        _check_name(name)
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        digests = list(pool.map(lambda path: digests_of_file(path, "sha256", "blake3"), paths))
    return tuple(
        File(path=name, sha256=sha256, blake3=blake3, size_bytes=path.stat().st_size)
        for name, (sha256, blake3), path in zip(names, digests, paths, strict=True)
    )
