"""Persists objects of moto, which holds them in memory: every change is on disk before its request is answered.

`<bucket>/<number>` holds the bytes of an object. `<bucket>/index.jsonl` gets a line for each object that is written or
deleted, so a request writes only what it changes; the server rewrites it when it starts, without what is gone. What the
stack does not use is not persisted: bucket settings, versions, tags, and incomplete uploads.
"""

import datetime as dt
import itertools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import FakeKey, S3Backend, s3_backends

from local.private_files import write_private

REGION = "us-east-1"
INDEX, WHOLE = "index.jsonl", "index.json"
"""The second is that of older versions, which replaced it as a whole."""
CHECKSUM = ("checksum_algorithm", "checksum_value", "checksum_type", "checksum_parts")


class KeptBuckets:
    """Moto's buckets and their copy in `folder`. Not safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Read and write nothing yet."""
        self._folder = folder / "kept"
        self._older = folder / "buckets"
        self._kept: dict[str, dict[str, tuple[FakeKey, str]]] = {}
        self._numbers = itertools.count()
        self._is_whole = False
        """Whether the last changes were all written: the disk may have been full."""

    @property
    def _s3(self) -> S3Backend:
        backend: S3Backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        return backend

    def restore(self) -> None:
        """Load the folder's objects into moto, and remove files that no index lists."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for bucket in sorted(path for path in self._folder.iterdir() if path.is_dir()):
            self._restore(bucket, _read(bucket))
        numbers = (int(path.name) for path in self._folder.glob("*/*") if path.name.isdecimal())
        self._numbers = itertools.count(max(numbers, default=0) + 1)
        self._take_over_older()

    def keep(self, bucket: str = "", key: str = "") -> None:
        """Write the changes since the last call, which are of this object alone if there is one of that name."""
        for name in list(self._kept):
            if name not in self._s3.buckets:
                del self._kept[name]
                self._remove(self._folder / name)
        is_known = key in self._kept.get(bucket, ()) or key in self._stored(bucket)
        alone, self._is_whole = is_known and self._is_whole, False
        for name in [bucket] if alone else list(self._s3.buckets):
            self._keep(name, {key} if alone else self._kept.get(name, {}).keys() | self._stored(name).keys())
        self._is_whole = True

    def _stored(self, bucket: str) -> dict[str, list[Any]]:
        """Versions by key."""
        return self._s3.buckets[bucket].keys if bucket in self._s3.buckets else {}

    def _keep(self, bucket: str, keys: set[str]) -> None:
        folder = self._folder / bucket
        if (kept := self._kept.get(bucket)) is None:
            folder.mkdir(exist_ok=True, mode=0o700)
            write_private(folder / INDEX, "")
            kept = self._kept[bucket] = {}
        stored = self._stored(bucket)
        newest = {key: dict.__getitem__(stored, key)[-1] for key in keys & stored.keys()}  # moto's accessors are slow
        objects = {key: item for key, item in newest.items() if isinstance(item, FakeKey)}
        if gone := (keys & kept.keys()) - objects.keys():  # first, because the disk may be full
            _append(folder / INDEX, map(_gone, gone))
            _unlink(folder, [kept.pop(key)[1] for key in gone])
        written = {key: item for key, item in objects.items() if key not in kept or kept[key][0] is not item}
        entries = {key: (item, str(next(self._numbers))) for key, item in written.items()}
        try:
            for item, number in entries.values():
                (folder / number).write_bytes(item.value)
            _append(folder / INDEX, (_line(key, *entry) for key, entry in entries.items()))
        except OSError:
            _unlink(folder, [number for _, number in entries.values()])
            raise
        old = [kept[key][1] for key in entries if key in kept]
        kept |= entries
        _unlink(folder, old)

    def _restore(self, folder: Path, index: dict[str, dict[str, Any]]) -> None:
        self._s3.create_bucket(folder.name, REGION)
        kept = {}
        for key, described in index.items():
            data = (folder / described["file"]).read_bytes()
            item = self._s3.put_object(folder.name, key, data, etag=described["etag"])
            item.set_metadata(described["metadata"])
            item.last_modified = dt.datetime.fromisoformat(described["last_modified"])
            for field in CHECKSUM:
                setattr(item, field, described[field])
            kept[key] = (item, described["file"])
        self._kept[folder.name] = kept
        # first, because they may fill the disk
        listed = {INDEX, WHOLE, *(number for _, number in kept.values())}
        _unlink(folder, [path.name for path in folder.iterdir() if path.name not in listed])
        text = "".join(_line(key, *entry) for key, entry in kept.items())
        if not (folder / INDEX).exists() or (folder / INDEX).read_text(encoding="utf-8") != text:
            try:
                write_private(folder / INDEX, text)
            except OSError:  # a full disk; the index as it is says the same in more lines
                _unlink(folder, [f"{INDEX}.partial"])
                if not (folder / INDEX).exists():
                    raise
        _unlink(folder, [WHOLE])

    def _take_over_older(self) -> None:
        """Load buckets in the format of older versions, which `down` wrote; store them, then remove the old files."""
        saved = self._older if self._older.exists() else self._older.with_name("buckets.old")
        for described in sorted(saved.glob("*.json")):
            bucket = described.stem
            if bucket not in self._s3.buckets:
                self._s3.create_bucket(bucket, REGION)
            for key, fields in json.loads(described.read_text()).items():
                item = self._s3.put_object(bucket, key, (saved / bucket / quote(key, safe="")).read_bytes())
                metadata = {f"x-amz-meta-{name}": value for name, value in fields["Metadata"].items()}
                item.set_metadata({"Content-Type": fields["ContentType"], **metadata})
        self.keep()
        for path in (saved, self._older.with_name("buckets.new")):
            self._remove(path)

    def _remove(self, folder: Path) -> None:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        if folder.exists():
            folder.rmdir()


def _read(folder: Path) -> dict[str, dict[str, Any]]:
    """The objects of a bucket. A last line without an end belongs to a request that was never answered."""
    if not (folder / INDEX).exists():
        whole: dict[str, dict[str, Any]] = json.loads((folder / WHOLE).read_text()) if (folder / WHOLE).exists() else {}
        return whole
    objects: dict[str, dict[str, Any]] = {}
    for line in (folder / INDEX).read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            for key, described in json.loads(line).items():
                objects.pop(key, None)
                if described:
                    objects[key] = described
    return objects


def _append(index: Path, lines: Iterable[str]) -> None:
    """Append whole lines, or none if the disk is full; first cut off half a line that an earlier call had to leave."""
    with index.open("r+b") as stream:
        whole = stream.seek(0, os.SEEK_END)
        if whole:
            stream.seek(-1, os.SEEK_END)
            if stream.read() != b"\n":
                stream.seek(0)
                whole = stream.read().rfind(b"\n") + 1
                stream.truncate(whole)
        stream.seek(whole)
        try:
            stream.write("".join(lines).encode())
            stream.flush()
        except OSError:
            os.truncate(index, whole)
            raise


def _unlink(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _line(key: str, item: FakeKey, number: str) -> str:
    return json.dumps({key: _described(item, number)}) + "\n"


def _gone(key: str) -> str:
    return json.dumps({key: None}) + "\n"


def _described(item: FakeKey, number: str) -> dict[str, Any]:
    return {
        "file": number,
        "etag": item.etag.strip('"'),
        "metadata": dict(item.metadata),
        "last_modified": item.last_modified.isoformat(),
        **{field: getattr(item, field) for field in CHECKSUM},
    }
