"""The adapter to S3: whole objects, files in parallel parts, server-side copies, and compare-and-swap.

Written against botocore 1.44. Amazon S3 guarantees that a read after a write sees it, that an object appears whole or
not at all, and that the server decides If-Match and If-None-Match of PutObject
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).
"""

import base64
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import botocore.session
from botocore import exceptions as aws
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from typing_extensions import override

from slipway.tasks.adapters.store.digests import new
from slipway.tasks.adapters.store.object_store import (
    ByteSource,
    LostRaceError,
    NotFoundError,
    ObjectStore,
    Progress,
    StoredObject,
    Upload,
    check_whole,
)
from slipway.tasks.adapters.store.parts import Lanes
from slipway.tasks.adapters.store.s3_errors import (
    NO_UPLOAD,
    OTHER_ETAG,
    S3_ATTEMPTS,
    ChangedSourceError,
    S3Errors,
    address_of,
    code_of,
)
from slipway.tasks.adapters.store.s3_files import S3Files
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import ObjectStoreSite
from slipway.tasks.contracts.stored.artifact import Algorithm

CONNECT_TIMEOUT_S = 5
R = TypeVar("R")

READ_TIMEOUT_S = 30
SPARE_CONNECTIONS = 32  # beside those of files: copies and documents
FIRST_REGION = "us-east-1"
LARGEST_DELETE = 1000  # DeleteObjects takes no more keys
SUPPORTED: Literal["when_supported"] = "when_supported"
REQUIRED: Literal["when_required"] = "when_required"
AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
CHECKSUM = "CRC32"
"""zlib's, at twice the speed of sha256. Amazon S3 compares it with the bytes that it received, and keeps it. Over TLS
botocore sends it after the body, which many other stores answer with MissingContentLength
(github.com/boto/boto3/issues/4398)."""


class S3ObjectStore(ObjectStore):
    """Amazon S3, or a store that implements its protocol. Safe to use from several threads."""

    def __init__(self, site: ObjectStoreSite, credentials: Mapping[str, str] | None = None) -> None:
        """Connect to the site's object store.

        Args:
            site: which store, and which bucket.
            credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. When absent, botocore looks for them in the
                environment, the web identity and the instance metadata.

        Raises:
            InputError: AWS_PROFILE names a profile that is not there, or AWS's files cannot be read.
        """
        self._site, self._is_amazon = site, _is_amazon(site.endpoint)
        addressing = {"addressing_style": site.addressing_style(os.environ)}
        keys = credentials or {}
        self._client = _client(
            keys,
            endpoint_url=site.endpoint,
            region_name=site.region,
            config=Config(
                signature_version="s3v4",  # links are signed with Version 2 otherwise, which most regions refuse
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"mode": "standard", "total_max_attempts": S3_ATTEMPTS},
                max_pool_connections=site.transfer.connections + SPARE_CONNECTIONS,
                s3=addressing,
                # without a checksum, the request's signature holds a sha256 of its body (Signature Version 4)
                request_checksum_calculation=SUPPORTED if self._is_amazon else REQUIRED,
                # readers compare the manifest's digest
                response_checksum_validation=REQUIRED,
            ),
        )
        lanes = Lanes(site.transfer.connections, site.transfer.bytes_per_s)
        self._files = S3Files(self._client, lanes, CHECKSUM if self._is_amazon else None)
        self._client.meta.events.register("before-sign.s3.DeleteObjects", _add_content_md5)
        self._errors = S3Errors(self._client, site.endpoint or f"Amazon S3 ({site.region})")

    @override
    def read_bytes(self, uri: str) -> bytes:
        content = self.read_with_etag(uri)
        if content is None:
            raise self._errors.absent(uri)
        return content[0]

    @override
    def read_with_etag(self, uri: str) -> tuple[bytes, str] | None:
        try:
            with self._errors.translated(uri):
                answer = self._client.get_object(**address_of(uri))
                with contextlib.closing(answer["Body"]) as body:
                    check_whole(uri, answer["ContentLength"])
                    return body.read(), answer["ETag"]
        except NotFoundError:
            return None

    @override
    def put_bytes(self, uri: str, data: bytes, *, content_type: str = "application/json") -> None:
        with self._errors.translated(uri):
            self._client.put_object(**address_of(uri), Body=data, ContentType=content_type)

    @override
    def put_if(self, uri: str, data: bytes, *, etag: str | None) -> str:
        try:
            with self._errors.translated(uri):
                answer = self._put_if(address_of(uri), data, etag)
        except NotFoundError as error:  # S3's answer to If-Match on an object that was deleted
            raise LostRaceError(f"{uri} was deleted after it was read", remedy="Read it again.") from error
        except LostRaceError as error:
            if own := self._written_before(error.__cause__, uri, data):
                return own
            raise
        return str(answer["ETag"])

    def _put_if(self, address: Mapping[str, str], data: bytes, etag: str | None) -> Mapping[str, Any]:
        """S3's answer to the conditional write."""
        put = partial(self._client.put_object, **address, Body=data, ContentType="application/json")
        if etag is None:
            return dict(put(IfNoneMatch="*"))
        return dict(self._if_match(address, etag, lambda condition: put(IfMatch=condition)))

    def _if_match(self, address: Mapping[str, str], etag: str, send: Callable[[str], R]) -> R:
        """The answer to a request on the condition that the object has this ETag."""
        try:
            return send(etag)
        except aws.ClientError as error:
            if self._is_amazon or not self._refuses_quotes(error, address, etag):
                raise
        return send(etag.strip('"'))

    def _refuses_quotes(self, refusal: aws.ClientError, address: Mapping[str, str], etag: str) -> bool:
        """Whether the store refused the ETag that the object has, in the quotes that are part of it.

        Ceph does (seen with 16.2.15), and takes it without them.
        """
        return code_of(refusal) in OTHER_ETAG and bool(self._client.head_object(**address)["ETag"] == etag)

    def _written_before(self, refusal: BaseException | None, uri: str, data: bytes) -> str | None:
        """The ETag of what an earlier attempt of the same request wrote, whose answer was lost; None if none did.

        botocore sends a request again after a lost answer, and its condition then refuses what it wrote itself.
        """
        response = refusal.response if isinstance(refusal, aws.ClientError) else {}
        if not response.get("ResponseMetadata", {}).get("RetryAttempts"):
            return None
        stored = self.read_with_etag(uri)
        return stored[1] if stored is not None and stored[0] == data else None

    @override
    def exists(self, uri: str) -> bool:
        return self.describe(uri) is not None

    @override
    def describe(self, uri: str) -> StoredObject | None:
        try:
            with self._errors.translated(uri):
                answer = self._client.head_object(**address_of(uri))
        except NotFoundError:
            return None
        return StoredObject(
            uri,
            answer["ContentLength"],
            answer["ETag"],
            answer["LastModified"],
            answer["Metadata"].get("sha256"),
        )

    @override
    def list(self, prefix_uri: str) -> Iterator[StoredObject]:
        address = address_of(prefix_uri)
        with self._errors.translated(prefix_uri):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=address["Bucket"], Prefix=address["Key"]
            )
            for page in pages:
                for item in page.get("Contents", []):
                    uri = f"s3://{address['Bucket']}/{item['Key']}"
                    yield StoredObject(uri, item["Size"], item["ETag"], item["LastModified"])

    @override
    def get_file(
        self,
        uri: str,
        path: Path,
        size_bytes: int,
        progress: Progress | None = None,
        *,
        algorithm: Algorithm = "sha256",
    ) -> str | None:
        with self._errors.translated(uri):
            return self._files.get(address_of(uri), path, size_bytes, progress or _ignore, new(algorithm))

    @override
    def read_into(self, uri: str, view: memoryview, *, offset: int, size_bytes: int, etag: str | None) -> None:
        address = address_of(uri)

        def read(condition: str | None) -> bool:
            return self._files.read_into(address, view, offset=offset, size_bytes=size_bytes, etag=condition)

        with self._errors.translated(uri):
            if read(None) if etag is None else self._if_match(address, etag, read):
                return
        raise LostRaceError(f"{uri} has not {size_bytes} bytes any more", remedy="Read it again.")

    @override
    def put_file(self, path: Path, uri: str, progress: Progress | None = None, *, sha256: str | None = None) -> None:
        with self._errors.translated(uri):
            self._files.put(path, address_of(uri), progress or _ignore, sha256)

    @override
    def put_stream(self, source: ByteSource, uri: str) -> str:
        with self._errors.translated(uri):
            return self._files.put_stream(source, address_of(uri))

    @override
    def copy(self, source: StoredObject, target_uri: str) -> None:
        address, target = address_of(source.uri), address_of(target_uri)

        def send(etag: str) -> None:
            self._files.copy(address, target, source.size_bytes, etag, source.sha256)

        with self._errors.translated(source.uri):
            try:
                self._if_match(address, source.etag, send)
            except aws.ClientError as error:
                if code_of(error) in OTHER_ETAG:
                    raise ChangedSourceError(str(error)) from error
                raise

    @override
    def delete(self, uris: Sequence[str]) -> Mapping[str, str]:
        addresses = [address_of(uri) for uri in uris]
        refused: dict[str, str] = {}
        for bucket in sorted({address["Bucket"] for address in addresses}):
            keys = [{"Key": address["Key"]} for address in addresses if address["Bucket"] == bucket]
            for first in range(0, len(keys), LARGEST_DELETE):
                with self._errors.translated(f"s3://{bucket}/{keys[first]['Key']}"):
                    answer = self._client.delete_objects(
                        Bucket=bucket, Delete={"Objects": keys[first : first + LARGEST_DELETE], "Quiet": True}
                    )
                for error in answer.get("Errors", []):
                    refused[f"s3://{bucket}/{error['Key']}"] = error.get("Code", "unknown error")
        return refused

    @override
    def uploads(self, prefix_uri: str) -> Iterator[Upload]:
        address = address_of(prefix_uri)
        with self._errors.translated(prefix_uri):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=address["Bucket"], Prefix=address["Key"]
            )
            for page in pages:
                for item in page.get("Uploads", []):
                    uri = f"s3://{address['Bucket']}/{item['Key']}"
                    yield Upload(uri, item["UploadId"], item["Initiated"])

    @override
    def abort(self, upload: Upload) -> None:
        with self._errors.translated(upload.uri):
            try:
                self._client.abort_multipart_upload(**address_of(upload.uri), UploadId=upload.upload_id)
            except aws.ClientError as error:
                if code_of(error) != NO_UPLOAD:
                    raise

    @override
    def link(self, uri: str) -> str:
        if page := self._site.page_of(uri):
            return page
        with self._errors.translated(uri):
            url = self._client.generate_presigned_url("get_object", address_of(uri), ExpiresIn=self._site.link_s)
        return str(url)

    @override
    def is_versioned(self, uri: str) -> bool | None:
        try:
            with self._errors.translated(uri):
                answer = self._client.get_bucket_versioning(Bucket=address_of(uri)["Bucket"])
        except InputError:
            return None
        # a suspended bucket keeps the versions that it has, and deletes of today's objects free their space
        return bool(answer.get("Status") == "Enabled")

    def ensure_bucket(self) -> bool:
        """Create the site's bucket unless it exists; return whether it was created.

        Raises:
            InputError: the credentials may not see or create it, or its name belongs to another account.
        """
        bucket = self._site.bucket
        # an object's address, because errors name one
        with self._errors.translated(f"s3://{bucket}/-"):
            if self._errors.has_bucket(f"s3://{bucket}/-"):
                return False
            # S3 takes any region but its first one as a constraint (API reference, CreateBucketConfiguration)
            elsewhere = self._is_amazon and self._site.region != FIRST_REGION
            where = {"CreateBucketConfiguration": {"LocationConstraint": self._site.region}} if elsewhere else {}
            self._client.create_bucket(Bucket=bucket, **where)
        return True


def _ignore(_: int) -> None:
    pass


def _is_amazon(endpoint: str | None) -> bool:
    return endpoint is None or str(urlsplit(endpoint).hostname).endswith(AMAZON)


def _add_content_md5(request: AWSRequest, **_: object) -> None:
    """Add the header that DeleteObjects needed until Amazon S3 took CRC32 too; other stores still refuse without it."""
    digest = hashlib.md5(request.body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode()


def _client(keys: Mapping[str, str], **options: Any) -> Any:
    """The client of botocore and not of boto3, whose import takes another 0.05 s of a CPU in each step."""
    key_id, secret = keys.get("AWS_ACCESS_KEY_ID"), keys.get("AWS_SECRET_ACCESS_KEY")
    try:
        session = botocore.session.Session()
        if key_id or secret:
            session.set_credentials(key_id, secret)
        return session.create_client("s3", **options)
    except (aws.ProfileNotFound, aws.ConfigParseError) as error:
        raise InputError(
            "the AWS settings of this machine cannot be used",
            found=error,
            expected="a profile that ~/.aws/config or ~/.aws/credentials has, or no AWS_PROFILE",
            remedy="Correct AWS_PROFILE and these files.",
        ) from error
