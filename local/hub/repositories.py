"""Turns fixture folders into repositories with commits and digests. Writes only to the state folder."""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from local.hub.damage import damage_file
from local.hub.declaration import FixtureError, RepositoryDeclaration, RevisionDeclaration, read_declaration

Kind = Literal["models", "datasets"]
LFS_SUFFIXES = (".safetensors", ".bin")
LFS_ABOVE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class LfsPointer:
    """How a large file is listed: by the sha256 of its bytes; its git blob is a short text."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class StoredFile:
    """A file as it is listed. `blob_id` is git's object id of the bytes, or of the pointer for a large file."""

    source: Path
    size_bytes: int
    blob_id: str
    lfs: LfsPointer | None

    @property
    def etag(self) -> str:
        """The digest that the Hub sends as ETag: sha256 for large files, git's sha1 for others."""
        return self.lfs.sha256 if self.lfs else self.blob_id


@dataclass(frozen=True)
class Revision:
    """A commit. `commit` is 40 hex characters and depends only on the revision's name and its files' digests."""

    commit: str
    files: Mapping[str, StoredFile]


@dataclass(frozen=True)
class Repository:
    """A repository of a `repository.yaml`; refs map to commits."""

    kind: Kind
    repo_id: str
    gated: bool
    tokens: frozenset[str]
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    commits: Mapping[str, Revision]

    @property
    def url_name(self) -> str:
        """The name in file URLs and faults: `org/name` or `datasets/org/name`."""
        return self.repo_id if self.kind == "models" else f"{self.kind}/{self.repo_id}"

    def revision(self, name: str) -> Revision | None:
        """Find a branch, tag or full commit id."""
        return self.commits.get(self.branches.get(name) or self.tags.get(name) or name)


def load_repositories(fixtures: Path, state: Path) -> list[Repository]:
    """Load every `<org>/<name>` and `datasets/<org>/<name>` below `fixtures`; damaged files go to `state`/damaged.

    Raises:
        FixtureError: there is no repository, or one names a file, folder or tensor that does not exist.
    """
    shutil.rmtree(state / "damaged", ignore_errors=True)
    files = [("datasets", file) for file in sorted(fixtures.glob("datasets/*/*/repository.yaml"))]
    files += [("models", file) for file in sorted(fixtures.glob("*/*/repository.yaml"))]
    if not files:
        raise FixtureError(
            f"{fixtures} has no <org>/<name>/repository.yaml", remedy="Give --fixtures the folder of the organisations."
        )
    return [_repository("datasets" if kind == "datasets" else "models", file.parent, state) for kind, file in files]


def _repository(kind: Kind, folder: Path, state: Path) -> Repository:
    declaration: RepositoryDeclaration = read_declaration(folder / "repository.yaml")
    repo_id = f"{folder.parent.name}/{folder.name}"
    sources: dict[str, dict[str, Path]] = {}
    commit_of: dict[str, str] = {}
    commits: dict[str, Revision] = {}
    for revision in declaration.revisions:
        files = dict(sources[revision.parent]) if revision.parent else {}
        _change(files, revision, folder, state / "damaged" / kind / repo_id / revision.name)
        sources[revision.name] = files
        stored = _revision(revision, files)
        commit_of[revision.name] = stored.commit
        commits[stored.commit] = stored
    return Repository(
        kind=kind,
        repo_id=repo_id,
        gated=declaration.gated,
        tokens=frozenset(declaration.tokens),
        branches={ref: commit_of[name] for ref, name in declaration.refs.branches.items()},
        tags={ref: commit_of[name] for ref, name in declaration.refs.tags.items()},
        commits=commits,
    )


def _change(files: dict[str, Path], revision: RevisionDeclaration, folder: Path, damaged: Path) -> None:
    """Apply overlay, removals and damage to `files`, which maps names in the repository to local files."""
    if revision.files is not None:
        overlay = folder / revision.files
        if not overlay.is_dir():
            raise FixtureError(
                f"{folder}: files of revision {revision.name}", found=revision.files, expected="a folder"
            )
        files |= {str(file.relative_to(overlay)): file for file in sorted(overlay.rglob("*")) if file.is_file()}
    changed = {*revision.wrong_digest, *(damage.file for damage in revision.damage)}
    if missing := (set(revision.remove) - files.keys()) | (changed - files.keys()) | (changed & set(revision.remove)):
        raise FixtureError(f"{folder}: revision {revision.name} names files it does not have", found=sorted(missing))
    for name in revision.remove:
        del files[name]
    for damage in revision.damage:
        target = damaged / damage.file
        if files[damage.file] != target:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(files[damage.file], target)
            files[damage.file] = target
        damage_file(target, damage)


def _revision(revision: RevisionDeclaration, files: Mapping[str, Path]) -> Revision:
    stored = {name: _stored_file(source, large=name.endswith(LFS_SUFFIXES)) for name, source in sorted(files.items())}
    for name in revision.wrong_digest:
        stored[name] = _with_wrong_digest(stored[name])
    listing = "".join(f"{file.etag} {name}\n" for name, file in stored.items())
    commit = hashlib.sha1(f"{revision.name}\n{listing}".encode(), usedforsecurity=False).hexdigest()
    return Revision(commit, stored)


@cache
def _stored_file(source: Path, *, large: bool) -> StoredFile:
    size_bytes = source.stat().st_size
    if large or size_bytes > LFS_ABOVE_BYTES:
        with source.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return _large_file(source, sha256, size_bytes)
    return StoredFile(source, size_bytes, git_blob_id(source.read_bytes()), lfs=None)


def _large_file(source: Path, sha256: str, size_bytes: int) -> StoredFile:
    # The text is fixed by https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size_bytes}\n".encode()
    return StoredFile(source, size_bytes, git_blob_id(pointer), LfsPointer(sha256, len(pointer)))


def _with_wrong_digest(file: StoredFile) -> StoredFile:
    if file.lfs:
        return _large_file(file.source, hashlib.sha256(file.lfs.sha256.encode()).hexdigest(), file.size_bytes)
    return replace(file, blob_id=git_blob_id(file.blob_id.encode()))


def git_blob_id(content: bytes) -> str:
    """Git's object id of a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
