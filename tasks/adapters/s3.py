"""The adapter to S3: whole objects, files in parallel parts, server-side copies, and compare-and-swap.

Written against boto3 1.44. Amazon S3 guarantees that a read after a write sees it, that an object appears complete or
not at all, and that the server decides If-Match and If-None-Match of PutObject
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import boto3
from boto3.exceptions import RetriesExceededError, S3UploadFailedError
from botocore import exceptions as aws
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from typing_extensions import override

from tasks.adapters.digests import new
from tasks.adapters.object_store import (
    ByteSource,
    LostRaceError,
    NotFoundError,
    ObjectStore,
    Progress,
    StoredObject,
    Upload,
)
from tasks.adapters.parts import Lanes
from tasks.adapters.s3_files import S3Files
from tasks.contracts.artifact import Algorithm
from tasks.contracts.errors import InputError, PipelineError, UnavailableError
from tasks.contracts.site import ObjectStoreSite
from tasks.contracts.site_objects import OBJECT_STORE_POLICY

BASE_POLICY = "object-store"  # k8s_manifests/base/networkpolicy-slipway-object-store.yaml
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
ATTEMPTS = 3
SPARE_CONNECTIONS = 32  # beside those of parts: small files, copies and documents
FIRST_REGION = "us-east-1"
LARGEST_DELETE = 1000  # DeleteObjects takes no more keys
QUOTED_CHARS = 120

NO_UPLOAD = "NoSuchUpload"
ABSENT_WITHOUT_BODY = frozenset({"404", "NotFound"})
ABSENT = ABSENT_WITHOUT_BODY | {"NoSuchKey"}
LOST_RACE = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
DENIED = frozenset(
    {"AccessDenied", "403", "Forbidden", "401", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled"}
)
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
BUSY = frozenset({"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "RequestTimeTooSkewed", "429"})
ELSEWHERE = frozenset(
    {"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
"""Codes of https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html; after a HEAD request, the status."""
SERVER_ERROR = 500
SUPPORTED: Literal["when_supported"] = "when_supported"
REQUIRED: Literal["when_required"] = "when_required"
CHECKSUM = "CRC32"
"""zlib's, at twice the speed of sha256. Amazon S3 compares it with the bytes that it received, and keeps it. Over TLS
boto3 sends it after the body, which many other stores answer with MissingContentLength
(github.com/boto/boto3/issues/4398)."""


class S3ObjectStore(ObjectStore):
    """Amazon S3, or a store that implements its protocol. Safe to use from several threads."""

    def __init__(self, site: ObjectStoreSite, credentials: Mapping[str, str] | None = None) -> None:
        """Connect to the site's object store.

        Args:
            site: which store, and which bucket.
            credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. When absent, boto3 looks for them in the
                environment, the web identity and the instance metadata.
        """
        self._endpoint = site.endpoint or f"Amazon S3 ({site.region})"
        self._site = site
        is_amazon = site.endpoint is None
        addressing = {} if is_amazon else {"addressing_style": "path"}
        given = credentials or {}
        self._client = boto3.session.Session(given.get("AWS_ACCESS_KEY_ID"), given.get("AWS_SECRET_ACCESS_KEY")).client(
            "s3",
            endpoint_url=site.endpoint,
            region_name=site.region,
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                max_pool_connections=site.transfer.connections + SPARE_CONNECTIONS,
                s3=addressing,
                # without a checksum, the request's signature holds a sha256 of its body (Signature Version 4)
                request_checksum_calculation=SUPPORTED if is_amazon else REQUIRED,
                # readers compare the manifest's digest
                response_checksum_validation=REQUIRED,
            ),
        )
        lanes = Lanes(site.transfer.connections, site.transfer.bytes_per_s)
        self._files = S3Files(self._client, lanes, CHECKSUM if is_amazon else None)
        self._client.meta.events.register("before-sign.s3.DeleteObjects", _add_content_md5)

    @override
    def read_bytes(self, uri: str) -> bytes:
        content = self.read_with_etag(uri)
        if content is None:
            raise self._absent(uri)
        return content[0]

    @override
    def read_with_etag(self, uri: str) -> tuple[bytes, str] | None:
        try:
            with self._translated(uri):
                answer = self._client.get_object(**_address(uri))
                return answer["Body"].read(), answer["ETag"]
        except NotFoundError:
            return None

    @override
    def put_bytes(self, uri: str, data: bytes, *, content_type: str = "application/json") -> None:
        with self._translated(uri):
            self._client.put_object(**_address(uri), Body=data, ContentType=content_type)

    @override
    def put_if(self, uri: str, data: bytes, *, etag: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            with self._translated(uri):
                answer = self._client.put_object(
                    **_address(uri), Body=data, ContentType="application/json", **condition
                )
        except NotFoundError as error:  # S3's answer to If-Match on an object that was deleted
            raise LostRaceError(f"{uri} was deleted after it was read", remedy="Read it again.") from error
        except LostRaceError as error:
            if own := self._written_before(error.__cause__, uri, data):
                return own
            raise
        return str(answer["ETag"])

    def _written_before(self, refusal: BaseException | None, uri: str, data: bytes) -> str | None:
        """The ETag of what an earlier attempt of the same request wrote, whose answer was lost; None if none did.

        boto3 sends a request again after a lost answer, and its condition then refuses what it wrote itself.
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
            with self._translated(uri):
                answer = self._client.head_object(**_address(uri))
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
        address = _address(prefix_uri)
        with self._translated(prefix_uri):
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
        with self._translated(uri):
            return self._files.get(_address(uri), path, size_bytes, progress or _ignore, new(algorithm))

    @override
    def put_file(self, path: Path, uri: str, progress: Progress | None = None, *, sha256: str | None = None) -> None:
        with self._translated(uri):
            self._files.put(path, _address(uri), progress, {"sha256": sha256} if sha256 else {})

    @override
    def put_stream(self, source: ByteSource, uri: str) -> str:
        with self._translated(uri):
            return self._files.put_stream(source, _address(uri))

    @override
    def copy(self, source_uri: str, target_uri: str) -> None:
        with self._translated(source_uri):
            self._files.copy(_address(source_uri), _address(target_uri))

    @override
    def delete(self, uris: Sequence[str]) -> Mapping[str, str]:
        addresses = [_address(uri) for uri in uris]
        refused: dict[str, str] = {}
        for bucket in sorted({address["Bucket"] for address in addresses}):
            keys = [{"Key": address["Key"]} for address in addresses if address["Bucket"] == bucket]
            for first in range(0, len(keys), LARGEST_DELETE):
                with self._translated(f"s3://{bucket}/{keys[first]['Key']}"):
                    answer = self._client.delete_objects(
                        Bucket=bucket, Delete={"Objects": keys[first : first + LARGEST_DELETE], "Quiet": True}
                    )
                for error in answer.get("Errors", []):
                    refused[f"s3://{bucket}/{error['Key']}"] = error.get("Code", "unknown error")
        return refused

    @override
    def uploads(self, prefix_uri: str) -> Iterator[Upload]:
        address = _address(prefix_uri)
        with self._translated(prefix_uri):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=address["Bucket"], Prefix=address["Key"]
            )
            for page in pages:
                for item in page.get("Uploads", []):
                    uri = f"s3://{address['Bucket']}/{item['Key']}"
                    yield Upload(uri, item["UploadId"], item["Initiated"])

    @override
    def abort(self, upload: Upload) -> None:
        with self._translated(upload.uri):
            try:
                self._client.abort_multipart_upload(**_address(upload.uri), UploadId=upload.upload_id)
            except aws.ClientError as error:
                if _code(error) != NO_UPLOAD:
                    raise

    @override
    def is_versioned(self, uri: str) -> bool | None:
        try:
            with self._translated(uri):
                answer = self._client.get_bucket_versioning(Bucket=_address(uri)["Bucket"])
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
        with self._translated(f"s3://{bucket}/-"):
            if self._has_bucket(f"s3://{bucket}/-"):
                return False
            # S3 takes any region but its first one as a constraint (API reference, CreateBucketConfiguration)
            elsewhere = self._site.endpoint is None and self._site.region != FIRST_REGION
            where = {"CreateBucketConfiguration": {"LocationConstraint": self._site.region}} if elsewhere else {}
            self._client.create_bucket(Bucket=bucket, **where)
        return True

    @contextmanager
    def _translated(self, uri: str) -> Iterator[None]:
        """Turn every error of boto3 into one of Slipway's."""
        try:
            yield
        except S3UploadFailedError as error:
            cause = error.__context__ or error.__cause__
            raise self._refusal(cause if isinstance(cause, aws.ClientError) else error, uri) from error
        except aws.ClientError as error:
            if _code(error) in ABSENT_WITHOUT_BODY and not self._has_bucket(uri):
                raise self._no_bucket(uri) from error
            raise self._refusal(error, uri) from error
        except aws.PartialCredentialsError as error:
            raise InputError(
                f"the credentials for {self._endpoint} are incomplete: {error}", remedy="Set both parts."
            ) from error
        except (aws.NoCredentialsError, aws.CredentialRetrievalError, aws.MetadataRetrievalError) as error:
            raise UnavailableError(
                f"there are no credentials for {self._endpoint}",
                found=type(error).__name__,
                expected="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the pod's cloud identity",
                remedy="On your own machine, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE. In a "
                "cluster, if this lasts, set object_store.credentials_secret in the site file.",
            ) from error
        except (aws.BotoCoreError, RetriesExceededError) as error:
            raise UnavailableError(
                f"{self._endpoint} does not answer for {uri}",
                found=f"{type(error).__name__}: {str(error)[:QUOTED_CHARS]}",
                remedy="Check object_store.endpoint in the site file, and that the store is up. On a cluster that "
                f"enforces network policies, {BASE_POLICY} or {OBJECT_STORE_POLICY} has to allow it: set "
                "object_store.networks in the site file and run `slipway setup`.",
            ) from error

    def _refusal(self, error: Exception, uri: str) -> PipelineError:
        response = error.response if isinstance(error, aws.ClientError) else {}
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", SERVER_ERROR))
        code, bucket = _code(error), _address(uri)["Bucket"]
        if code in ABSENT | {"NoSuchBucket"}:
            return self._absent(uri) if code in ABSENT else self._no_bucket(uri)
        if code in LOST_RACE:
            return LostRaceError(f"{uri} was changed by another writer after it was read", remedy="Read it again.")
        if code in EXPIRED | BUSY or (code not in DENIED | ELSEWHERE and status >= SERVER_ERROR):
            return UnavailableError(
                f"{self._endpoint} cannot serve {uri} now", found=code or status, remedy="Run the step again."
            )
        if code in DENIED:
            remedy = f"Allow them to read, write and list {bucket}."
            return InputError(f"{self._endpoint} rejects the credentials for {uri}", found=code, remedy=remedy)
        if code in ELSEWHERE:
            remedy = "Correct object_store.region in the site file."
            return InputError(f"{self._endpoint}: {bucket} is in another region", found=code, remedy=remedy)
        return InputError(
            f"{self._endpoint} rejected a request for {uri}",
            found=f"{code or status}, {str(error)[:QUOTED_CHARS]}",
            expected="a store that implements S3",
            remedy="Look the code up in the store's manual, or correct object_store in the site file.",
        )

    def _absent(self, uri: str) -> NotFoundError:
        return NotFoundError(
            f"{uri} does not exist at {self._endpoint}", remedy="Run the step that writes it, or restore it."
        )

    def _has_bucket(self, uri: str) -> bool:
        """A HEAD request that finds nothing does not say whether the object or the bucket is missing."""
        try:
            self._client.head_bucket(Bucket=_address(uri)["Bucket"])
        except aws.ClientError as error:
            return _code(error) not in ABSENT_WITHOUT_BODY
        return True

    def _no_bucket(self, uri: str) -> InputError:
        return InputError(
            f"bucket {_address(uri)['Bucket']} does not exist at {self._endpoint}",
            remedy="Run `slipway setup`, which creates it, or correct object_store.bucket or object_store.endpoint in "
            "the site file.",
        )


def _ignore(_: int) -> None:
    pass


def _add_content_md5(request: AWSRequest, **_: object) -> None:
    """Add the header that DeleteObjects needed until Amazon S3 took CRC32 too; other stores still refuse without it."""
    digest = hashlib.md5(request.body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode()


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, aws.ClientError) else ""


def _address(uri: str) -> dict[str, str]:
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket or not key:
        raise InputError("invalid address of an object", found=repr(uri), expected="s3://<bucket>/<key>")
    return {"Bucket": bucket, "Key": key}
