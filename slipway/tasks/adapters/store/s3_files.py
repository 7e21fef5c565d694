"""Files to and from S3, in parallel parts, digested on the way. Errors are botocore's, which s3.py translates."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from botocore import exceptions as aws
from urllib3.exceptions import SSLError

from slipway.tasks.adapters.disk import disk_errors
from slipway.tasks.adapters.progress import size
from slipway.tasks.adapters.store.digests import Digest
from slipway.tasks.adapters.store.object_store import ByteSource, Progress
from slipway.tasks.adapters.store.parts import PART_BYTES, Lanes, part_bytes_of, readable_part_bytes
from slipway.tasks.contracts.errors import InputError

MOST_PARTS = 10_000
"""The most parts that one upload may have (docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html)."""
MOST_BYTES = 5 * 2**40
"""The largest object that S3 stores (the same page)."""
COPY_PART_BYTES = 256 * 2**20
"""No byte of a copy passes through this process, so its parts may be large: 140 GB are 550 requests."""
MOST_READS = 256
"""Parts of a local file that may be read at a time: as many as there can be connections."""
ATTEMPTS = 4
"""Connections that break one after the other while one part is read. botocore repeats requests, not their reading."""
BROKEN = (aws.ResponseStreamingError, aws.ReadTimeoutError, aws.IncompleteReadError)
READ_BYTES = 120 * 2**10
"""Fits into a core's cache. From 128 KiB on, glibc maps and unmaps the memory of each piece that urllib3 allocates."""
ONE_CONNECTION_BYTES_PER_S = 150 * 10**6
"""Below this rate a file is read over several connections. Amazon S3 gives one 85 to 90 MB/s
(docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance-guidelines.html); what is faster than this is
limited by CPUs and disks, which more connections would keep from their work."""
LONGEST_RANGE_BYTES = 8 * PART_BYTES
"""After so many bytes the rate is looked at again. A request costs as much CPU as 2 MB that it brings."""
SHORTER = "InvalidRange"
Address = Mapping[str, str]
Take = Callable[[memoryview], None]


class OtherSizeError(Exception):
    """The object has another size than expected. Never leaves this module."""


class S3Files:
    """Moves files by one client. Safe to use from several threads."""

    def __init__(self, client: Any, lanes: Lanes, checksum: str | None) -> None:
        """`checksum`: what the store compares an upload's parts with; None where each request's signature does that."""
        self._client, self._lanes = client, lanes
        self._checksum = {"ChecksumAlgorithm": checksum} if checksum else {}

    def get(self, address: Address, path: Path, size_bytes: int, progress: Progress, digest: Digest) -> str | None:
        """See ObjectStore.get_file; `digest` is that of no bytes yet."""
        start = _beginning(path, size_bytes, digest)
        progress(start)
        if path.is_file() and start == size_bytes:  # interrupted after its last byte, and S3 has no range of no bytes
            return digest.hexdigest()

        def take(view: memoryview) -> None:
            digest.update(view)
            progress(len(view))

        try:
            with contextlib.closing(_Tail(path)) as tail:
                start = self._stream(address, size_bytes, start, tail, take)
                if start < size_bytes:
                    read = partial(self._read, address, size_bytes)
                    self._lanes.move(
                        size_bytes,
                        read,
                        take,
                        lambda _, view: tail.append(view),
                        start=start,
                        part_bytes=readable_part_bytes(self._lanes.connections),
                        in_order=True,
                    )
        except OtherSizeError:
            path.unlink(missing_ok=True)
            return None
        return digest.hexdigest()

    def read_into(self, address: Address, view: memoryview, *, offset: int, size_bytes: int, etag: str | None) -> bool:
        """Fill `view` from the object if it has this ETag, or any where none is given; False if it has another size."""
        condition = {"IfMatch": etag} if etag else {}
        try:
            self._read({**address, **condition}, size_bytes, offset, view)
        except OtherSizeError:
            return False
        return True

    def put(self, path: Path, address: Address, progress: Progress, sha256: str | None) -> None:
        """See ObjectStore.put_file."""
        with path.open("rb") as file:
            self._put(_Local(file, address["Key"], sha256, progress), address, progress)

    def put_stream(self, source: ByteSource, address: Address) -> str:
        """See ObjectStore.put_stream. The source reports progress as it is read, over the slower of the two ways."""
        return self._put(source, address, lambda _: None)

    def _put(self, source: ByteSource, address: Address, sent: Progress) -> str:
        if source.size_bytes <= PART_BYTES:
            digests: list[str] = []

            def small(view: memoryview) -> None:
                self._lanes.limit.take(len(view))
                source.read_into(0, view)
                source.digest(view)
                digests.append(source.verified())
                metadata = _metadata(digests[0])
                with self._lanes.connection():
                    self._client.put_object(**address, Body=_body_of(view), Metadata=metadata, **self._checksum)
                sent(len(view))

            self._lanes.small(source.size_bytes, small)
            return digests[0]
        return self._put_in_parts(source, address, sent)

    def copy(self, source: Address, target: Address, size_bytes: int, etag: str, sha256: str | None) -> None:
        """See ObjectStore.copy; the store refuses if the source has another ETag."""
        if size_bytes < 2 * COPY_PART_BYTES:  # one request copies up to 5 GB
            self._client.copy_object(**target, CopySource=dict(source), CopySourceIfMatch=etag)
            return
        from slipway.tasks.adapters.store.s3_transfers import copy_in_parts

        # a copy in parts drops the metadata unless it is given again
        extra = {"Metadata": _metadata(sha256), "MetadataDirective": "REPLACE", "CopySourceIfMatch": etag}
        copy_in_parts(self._client, source, target, extra, COPY_PART_BYTES)

    def _put_in_parts(self, source: ByteSource, address: Address, sent: Progress) -> str:
        if source.size_bytes > MOST_BYTES:
            raise InputError(
                f"s3://{address['Bucket']}/{address['Key']} would be larger than an object in S3 can be",
                found=size(source.size_bytes),
                expected=f"at most {size(MOST_BYTES)}",
                remedy="Choose a model whose weights are in several files.",
            )
        part_bytes = part_bytes_of(source.size_bytes, MOST_PARTS)
        # an upload's metadata is given before its bytes are known
        upload = self._client.create_multipart_upload(**address, Metadata=_metadata(source.sha256), **self._checksum)[
            "UploadId"
        ]
        parts: dict[int, dict[str, Any]] = {}

        def write(offset: int, view: memoryview) -> None:
            number = offset // part_bytes + 1
            self._lanes.limit.take(len(view))
            answer = self._client.upload_part(
                **address, UploadId=upload, PartNumber=number, Body=_body_of(view), **self._checksum
            )
            parts[number] = {
                "PartNumber": number,
                **{name: value for name, value in answer.items() if name == "ETag" or name.startswith("Checksum")},
            }
            sent(len(view))

        try:
            self._lanes.move(
                source.size_bytes,
                source.read_into,
                source.digest,
                write,
                part_bytes=part_bytes,
                reads_at_once=lambda: source.reads_at_once,
            )
            sha256 = source.verified()
            self._client.complete_multipart_upload(
                **address, UploadId=upload, MultipartUpload={"Parts": [parts[number] for number in sorted(parts)]}
            )
        except BaseException:
            with contextlib.suppress(aws.ClientError, aws.BotoCoreError):
                self._client.abort_multipart_upload(**address, UploadId=upload)
            raise
        return sha256

    def _stream(self, address: Address, size_bytes: int, start: int, tail: "_Tail", take: Take) -> int:
        """Append a file's bytes from `start` on as they come over one connection.

        They are digested and written while they are in the core's cache, at half the cost of parts that arrive side by
        side. Return where it stopped, because this connection alone is slower than several together would be.
        """
        buffer = memoryview(bytearray(min(READ_BYTES, size_bytes - start)))
        range_bytes = PART_BYTES

        def append(count: int) -> None:
            tail.append(buffer[:count])
            take(buffer[:count])

        while True:
            length = min(range_bytes, size_bytes - start)
            with self._lanes.connection():
                rate = _rate(self._received(address, size_bytes, start, length, lambda _: buffer), append)
            start += length
            if start == size_bytes or rate < ONE_CONNECTION_BYTES_PER_S:
                return start
            range_bytes = min(2 * range_bytes, LONGEST_RANGE_BYTES)

    def _read(self, address: Address, size_bytes: int, offset: int, view: memoryview) -> None:
        """Fill `view` from the object."""
        room = partial(_piece, view)
        for _ in self._received(address, size_bytes, offset, len(view), room):
            pass

    def _received(
        self, address: Address, size_bytes: int, offset: int, length: int, room: Callable[[int], memoryview]
    ) -> Generator[int, None, None]:
        """Read these bytes of the object, over several connections if they break.

        `room` gives the memory for what comes next, by its position in the range; yield how much of it is filled.
        """
        position = failures = 0
        while True:
            before = position
            try:
                with contextlib.closing(self._body(address, size_bytes, offset + position, length - position)) as body:
                    while position < length:
                        received = _fill(room(position)[: length - position], body)
                        position += received
                        self._lanes.limit.take(received)
                        if not received:
                            raise aws.IncompleteReadError(actual_bytes=position, expected_bytes=length)
                        yield received
            except BROKEN:
                failures = 1 if position > before else failures + 1
                if failures >= ATTEMPTS:
                    raise
            else:
                return

    def _body(self, address: Address, size_bytes: int, offset: int, length: int) -> Any:
        """The open answer with these bytes.

        Raises:
            OtherSizeError: the object has not `size_bytes`.
        """
        if length == size_bytes:
            answer = self._client.get_object(**address)
            actual = str(answer["ContentLength"])
        else:
            try:
                answer = self._client.get_object(**address, Range=f"bytes={offset}-{offset + length - 1}")
            except aws.ClientError as error:
                if error.response.get("Error", {}).get("Code") == SHORTER:
                    raise OtherSizeError from error
                raise
            actual = answer.get("ContentRange", "").rpartition("/")[2]
        if actual == str(size_bytes):
            return answer["Body"]
        answer["Body"].close()
        if not actual:
            raise InputError(
                f"the object store ignores ranges of s3://{address['Bucket']}/{address['Key']}",
                expected="a store that implements S3",
                remedy="Correct object_store.endpoint in the site file.",
            )
        raise OtherSizeError


class _Local:
    """The bytes of an open file of this machine. Its digest is known, or nobody asks for one."""

    def __init__(self, file: IO[bytes], name: str, sha256: str | None, progress: Progress) -> None:
        self.size_bytes, self.sha256, self.reads_at_once = os.fstat(file.fileno()).st_size, sha256, MOST_READS
        self._file, self._name, self._progress = file, name, progress

    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill the view.

        Raises:
            InputError: the file became shorter.
        """
        self._progress(0)  # which raises once the transfer is given up
        filled = 0
        while filled < len(view):
            count = os.preadv(self._file.fileno(), [view[filled:]], offset + filled)
            if not count:
                raise InputError(
                    f"{self._name} changed while it was stored",
                    found=f"{offset + filled} bytes",
                    expected=f"{self.size_bytes}",
                    remedy="Run the step again, with nothing else that writes to its folder.",
                )
            filled += count

    def digest(self, view: memoryview) -> None:
        """Nothing: the digest is known."""

    def verified(self) -> str:
        """The digest as it was given; empty if none was."""
        return self.sha256 or ""


class _Tail:
    """Appends to a file, which is made with the first piece, even an empty one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def append(self, view: memoryview) -> None:
        """Write the next bytes."""
        with disk_errors(self._path.name):
            self._file = self._file or self._path.open("ab")
            self._file.write(view)
            self._file.flush()

    def close(self) -> None:
        """Close the file. What was appended is in it."""
        if self._file:
            with disk_errors(self._path.name):  # what could not be flushed is tried again
                self._file.close()


def _rate(pieces: Generator[int, None, None], append: Callable[[int], None]) -> float:
    """Append every piece; return the bytes that came in each second of waiting for them, without the first piece."""
    waited_s, counted = 0.0, 0
    with contextlib.closing(pieces):
        append(next(pieces, 0))
        while True:
            began = time.monotonic()
            received = next(pieces, 0)
            waited_s += time.monotonic() - began
            if not received:
                return counted / waited_s if waited_s else math.inf
            counted += received
            append(received)


def _fill(view: memoryview, body: Any) -> int:
    try:
        return int(body.readinto(view))
    except SSLError as error:  # the one error of reading that botocore does not translate
        raise aws.ResponseStreamingError(error=error) from error


def _piece(view: memoryview, position: int) -> memoryview:
    return view[position : position + READ_BYTES]


def _metadata(sha256: str | None) -> dict[str, str]:
    return {"sha256": sha256} if sha256 else {}


def _body_of(view: memoryview) -> bytes | bytearray:
    """What botocore takes, without a copy where the view is a whole buffer."""
    buffer = view.obj
    return buffer if isinstance(buffer, bytearray) and len(buffer) == len(view) else bytes(view)


def _beginning(path: Path, size_bytes: int, digest: Digest) -> int:
    """Digest what an interrupted download left at `path`; return its size. What is too long to be one is removed."""
    if not path.is_file():
        return 0
    if (actual_bytes := path.stat().st_size) > size_bytes:
        path.unlink()
        return 0
    with path.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
    return actual_bytes
