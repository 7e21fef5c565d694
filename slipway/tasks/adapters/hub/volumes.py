"""Models in folders of a PersistentVolumeClaim, which the pods of plan and download mount read-only.

A file system has no digests. Where the folder has SHA256SUMS, a file's digest is the sha256 in it; elsewhere it is made
of the file's times and size, as web servers make ETags. The time of change counts too: an archive may give every
version of a file the same time of modification, and shards of two models have the same size. What was opened is
compared before and after each read.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from slipway.tasks.adapters.hub.folder_files import (
    MAX_FILES,
    QUOTED,
    SUMS,
    FolderBytes,
    check_complete,
    check_size,
    sums_of,
    too_many,
)
from slipway.tasks.adapters.hub.reading import SHA256, STAT, ModelHub, ignore, in_memory, readable
from slipway.tasks.adapters.store.object_store import ByteSource
from slipway.tasks.adapters.store.transfer import Count
from slipway.tasks.contracts.base import sha256_of
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.spec_fields import VOLUME, claim_of
from slipway.tasks.contracts.stored.plan import HubFile, Source

R = TypeVar("R")

OPENED = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""A FIFO without a writer does not block, and is refused once it is open."""


class VolumeFolders(ModelHub):
    """Models by `pvc://<claim>[/<folder>]`. A folder has no revisions: it is resolved as it is now."""

    def __init__(self, mounted: str) -> None:
        """`mounted` is `<claim>=<folder where it is mounted>`, and empty in a process that mounts none."""
        self._claim, _, self._root = mounted.partition("=")

    @override
    def resolve(self, repo: str, revision: str) -> Source:
        with self._folder(repo) as folder:
            found = folder.files()
            sums = sums_of(f"{repo}/{SUMS}", folder.read(SUMS, found[SUMS])) if SUMS in found else {}
        check_complete(repo, sums, found)
        seen = [[path, file.digest, file.size_bytes] for path, file in sorted(found.items())]
        files = tuple(
            file.model_copy(update={"digest": f"{SHA256}:{sums[path]}"}) if path in sums else file
            for path, file in sorted(found.items())
        )
        return Source(repo=repo, revision="", commit=sha256_of(seen), files=files)

    @override
    def read_file(self, source: Source, path: str) -> bytes:
        return self.bring(source, readable(source, path), in_memory, ignore)

    @override
    def bring(self, source: Source, file: HubFile, take: Callable[[ByteSource], R], count: Count) -> R:
        with self._folder(source.repo) as folder:
            return folder.bring(file, take, count)

    @contextmanager
    def _folder(self, repo: str) -> "Iterator[_Folder]":
        """The folder, open.

        Raises:
            InputError: this process does not mount the claim, or the claim has no such folder.
        """
        claim = claim_of(repo)
        if not self._root or claim != self._claim:
            raise InputError(
                f"{repo} is on a volume that is not mounted here",
                found=f"claim {self._claim}" if self._root else "a process without volumes",
                expected=f"a pod of plan or download, which mounts claim {claim}",
                remedy="Plan the model by its name (`slipway plan NAME`), which does it in such a pod. Where this "
                f"Linux machine has the same file system, SLIPWAY_VOLUME={claim}=FOLDER names its root.",
            )
        inside = repo.removeprefix(f"{VOLUME}{claim}").lstrip("/")
        root = Path(self._root).resolve()
        with _open(root / inside, repo, root, stat.S_ISDIR, "a folder") as descriptor:
            yield _Folder(repo, _path(descriptor))


class _Folder:
    """One folder that is open."""

    def __init__(self, uri: str, path: Path) -> None:
        self._uri, self._path = uri, path

    def files(self) -> dict[str, HubFile]:
        """The files at its top, by name. Folders in it are left out, as at a Hub: they hold no files of a release.

        Raises:
            InputError: there are none or too many, or one is neither a file nor a folder, or lies elsewhere.
        """
        with _told(self._uri), os.scandir(self._path) as entries:
            listed = list(islice(entries, MAX_FILES + 1))
        if len(listed) > MAX_FILES:
            raise too_many(self._uri)
        names = sorted(_plain(entry.name, self._uri) for entry in listed if not _is_folder(entry, self._uri))
        if not names:
            raise InputError(
                f"{self._uri} holds no files",
                expected="a checkpoint's files",
                remedy="Correct source.uri, or copy the files there.",
            )
        return {name: self._seen(name) for name in names}

    def bring(self, file: HubFile, take: Callable[[ByteSource], R], count: Count) -> R:
        """Give a file to `take`, as ModelHub.bring."""
        with self._open(file.path) as descriptor:
            return take(_FileBytes(f"{self._uri}/{file.path}", descriptor, file, count))

    def read(self, path: str, file: HubFile) -> bytes:
        """A small file."""
        source = Source(repo=self._uri, revision="", commit=sha256_of([]), files=(file,))
        return self.bring(readable(source, path), in_memory, ignore)

    def _seen(self, name: str) -> HubFile:
        with self._open(name) as descriptor:
            found = os.fstat(descriptor)
        check_size(f"{self._uri}/{name}", found.st_size)
        return HubFile(path=name, digest=f"{STAT}:{_stamp(found)}", size_bytes=found.st_size)

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        uri = f"{self._uri}/{name}"
        with _open(self._path / name, uri, self._path, stat.S_ISREG, "a plain file") as descriptor:
            yield descriptor


class _FileBytes(FolderBytes):
    """The bytes of one open file."""

    def __init__(self, uri: str, descriptor: int, file: HubFile, count: Count) -> None:
        super().__init__(uri, file)
        self._descriptor, self._count = descriptor, count
        algorithm, _, value = file.digest.partition(":")
        self._stamp = value if algorithm == STAT else None
        self._check()

    @override
    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill the view.

        Raises:
            InputError: the file changed after the release was planned.
            UnavailableError: the volume cannot be read.
        """
        filled = 0
        with _told(self._uri):
            while filled < len(view):
                read = os.preadv(self._descriptor, [view[filled:]], offset + filled)
                if not read:
                    raise self.changed(f"{offset + filled} bytes")
                filled += read
        self._check()
        self._count(len(view))

    def _check(self) -> None:
        found = os.fstat(self._descriptor)
        if found.st_size != self.size_bytes or self._stamp not in {None, _stamp(found)}:
            raise self.changed(f"{found.st_size} bytes, {STAT}:{_stamp(found)}")


def _is_folder(entry: os.DirEntry[str], folder: str) -> bool:
    with _told(f"{folder}/{os.fsencode(entry.name).decode(errors='replace')}"):
        return entry.is_dir()


def _plain(name: str, folder: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{folder} holds a file whose name is not UTF-8",
            found=repr(name[:QUOTED]),
            remedy="Rename it, or remove it.",
        ) from error
    return name


def _path(descriptor: int) -> Path:
    """Return the real path of what is open."""
    return Path("/proc/self/fd", str(descriptor)).readlink()


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns:x}-{found.st_ctime_ns:x}-{found.st_size:x}"


@contextmanager
def _open(path: Path, uri: str, root: Path, is_right: Callable[[int], bool], expected: str) -> Iterator[int]:
    """What is at `path`, open.

    Raises:
        InputError: there is nothing, it may not be read, or what was opened is not of the expected kind or lies outside
            `root`. It is asked of what was opened, because a link may change after it was looked at.
        UnavailableError: the volume cannot be read.
    """
    with _told(uri):
        descriptor = os.open(path, OPENED)
    try:
        if not _path(descriptor).is_relative_to(root):
            raise InputError(
                f"{uri} is a link that leads out of its folder",
                expected=f"{expected} below it",
                remedy="Copy what it leads to in its place: `cp -L`, or `hf download --local-dir` for a Hub's cache.",
            )
        mode = os.fstat(descriptor).st_mode
        if not is_right(mode):
            raise InputError(
                f"{uri} is not {expected}",
                found=stat.filemode(mode),
                remedy="Correct source.uri, or remove what is there.",
            )
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _told(uri: str) -> Iterator[None]:
    """Errors of the file system as ours."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            f"{uri} does not exist",
            found=error.strerror,
            expected="a checkpoint's files",
            remedy="Correct source.uri, or copy the files there.",
        ) from error
    except PermissionError as error:
        raise InputError(
            f"{uri} may not be read by the user of steps",
            found=error.strerror,
            expected=f"what user {os.getuid()} can read",
            remedy="`chmod -R a+rX` on its folder; folders above it need x as well.",
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError(
                f"{uri} is a link that leads back to itself",
                expected="a checkpoint's files",
                remedy="Remove it, or copy the file there.",
            ) from error
        raise UnavailableError(f"{uri} cannot be read", found=error.strerror, remedy="Check the volume.") from error
