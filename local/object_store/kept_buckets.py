"""Persists objects of moto, which holds them in memory: every change is on disk before its request is answered.

`<bucket>/index.json` lists the objects and is replaced as a whole; `<bucket>/<number>` holds the bytes of an object.
What the stack does not use is not persisted: bucket settings, versions, tags, and incomplete uploads.
"""

import datetime as dt
import itertools
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import FakeKey, S3Backend, s3_backends

from local.private_files import write_private

REGION = "us-east-1"
INDEX = "index.json"
CHECKSUM = ("checksum_algorithm", "checksum_value", "checksum_type", "checksum_parts")


class KeptBuckets:
    """Moto's buckets and their copy in `folder`. Not safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Read and write nothing yet."""
        self._folder = folder / "kept"
        self._older = folder / "buckets"
        self._kept: dict[str, dict[str, tuple[FakeKey, str]]] = {}
        self._numbers = itertools.count()

    @property
    def _s3(self) -> S3Backend:
        backend: S3Backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        return backend

    def restore(self) -> None:
        """Load the folder's objects into moto, and remove files that no index lists."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for index in sorted(self._folder.glob(f"*/{INDEX}")):
            self._restore(index.parent, json.loads(index.read_text()))
        self._take_over_older()
        numbers = (int(path.name) for path in self._folder.glob("*/*") if path.name.isdecimal())
        self._numbers = itertools.count(max(numbers, default=0) + 1)

    def keep(self) -> None:
        """Write the changes since the last call."""
        for name in list(self._kept):
            if name not in self._s3.buckets:
                del self._kept[name]
                self._remove(self._folder / name)
        for name, bucket in self._s3.buckets.items():
            self._keep(name, {key: item for key, item in bucket.keys.items() if isinstance(item, FakeKey)})

    def _keep(self, bucket: str, objects: dict[str, FakeKey]) -> None:
        folder, before = self._folder / bucket, self._kept.get(bucket)
        after = {}
        for key, item in objects.items():
            if before and key in before and before[key][0] is item:
                after[key] = before[key]
            else:
                after[key] = (item, str(next(self._numbers)))
        if before is not None and after == before:
            return
        folder.mkdir(exist_ok=True, mode=0o700)
        old = {number for _, number in (before or {}).values()}
        for item, number in after.values():
            if number not in old:
                (folder / number).write_bytes(item.value)
        write_private(folder / INDEX, json.dumps({key: _described(*entry) for key, entry in after.items()}))
        self._kept[bucket] = after
        for number in old - {number for _, number in after.values()}:
            (folder / number).unlink(missing_ok=True)

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
        for path in folder.iterdir():
            if path.name != INDEX and path.name not in {number for _, number in kept.values()}:
                path.unlink()

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


def _described(item: FakeKey, number: str) -> dict[str, Any]:
    return {
        "file": number,
        "etag": item.etag.strip('"'),
        "metadata": dict(item.metadata),
        "last_modified": item.last_modified.isoformat(),
        **{field: getattr(item, field) for field in CHECKSUM},
    }
