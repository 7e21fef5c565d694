"""The door to S3: whole objects, files in parallel parts, server-side copies, and compare-and-swap.

Written against boto3 1.44. What Amazon S3 promises here: a read after a write sees it, an object appears whole or not
at all, and If-Match and If-None-Match on PutObject are decided by the server
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import boto3
from boto3.exceptions import RetriesExceededError, S3UploadFailedError
from boto3.s3.transfer import TransferConfig
from botocore import exceptions as aws
from botocore.config import Config

from tasks.contracts.errors import ConflictError, InputError, PipelineError, UnavailableError
from tasks.contracts.site import ObjectStoreSite

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
ATTEMPTS = 3
PART_BYTES = 16 * 2**20
PARTS_AT_ONCE = 8
CONNECTIONS = 40  # some files at once, each in parallel parts
LARGEST_DELETE = 1000  # DeleteObjects takes no more keys
QUOTED_CHARS = 120

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
"""Codes of https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html; HEAD has no body, so a status there."""
SERVER_ERROR = 500

Progress = Callable[[int], None]
"""Called with the bytes that moved since the last call, from several threads."""


class NotFoundError(InputError):
    """There is no such object."""


class LostRaceError(ConflictError):
    """Another writer changed the object since it was read."""


@dataclass(frozen=True)
class StoredObject:
    """An object as the store describes it. `sha256` is what `put_file` was told; lists never know it."""

    uri: str
    size_bytes: int
    etag: str
    sha256: str | None = None


class ObjectStore(Protocol):
    """Objects by `s3://bucket/key`.

    Every method raises InputError when the bucket is missing or the credentials are refused, and UnavailableError when
    the store does not answer, is busy, or the credentials have run out.
    """

    def read_bytes(self, uri: str) -> bytes:
        """The object's bytes.

        Raises:
            NotFoundError: there is none.
        """

    def read_with_etag(self, uri: str) -> tuple[bytes, str] | None:
        """The object's bytes and ETag; None when there is none."""

    def put_bytes(self, uri: str, data: bytes, *, content_type: str = "application/json") -> None:
        """Write an object, over what was there."""

    def put_if(self, uri: str, data: bytes, *, etag: str | None) -> str:
        """Write a JSON object only if it still has that ETag; None: only if there is none. Returns the new ETag.

        Raises:
            LostRaceError: somebody else wrote it first.
        """

    def exists(self, uri: str) -> bool:
        """Whether there is such an object."""

    def describe(self, uri: str) -> StoredObject | None:
        """What is known of an object without reading it; None when there is none."""

    def list(self, prefix_uri: str) -> Iterator[StoredObject]:
        """Every object whose URI starts so."""

    def get_file(self, uri: str, path: Path, progress: Progress | None = None) -> None:
        """Bring an object into a file, in parallel parts. A file appears under `path` only when it is whole.

        Raises:
            NotFoundError: there is none.
        """

    def put_file(self, path: Path, uri: str, progress: Progress | None = None, *, sha256: str | None = None) -> None:
        """Bring a file into an object, in parallel parts that the store checks. `sha256` is kept beside it."""

    def copy(self, source_uri: str, target_uri: str) -> None:
        """Copy within the store, along with what `put_file` keeps.

        Raises:
            NotFoundError: there is no source.
        """

    def delete(self, uris: Sequence[str]) -> None:
        """Delete objects; absent ones count as deleted."""


class S3ObjectStore:
    """Amazon S3, or what speaks its protocol. Safe to use from several threads."""

    def __init__(self, site: ObjectStoreSite) -> None:
        """Credentials are found as boto3 finds them: environment, web identity, instance metadata."""
        self._endpoint = site.endpoint or f"Amazon S3 ({site.region})"
        addressing = {"addressing_style": "path"} if site.endpoint else {}
        self._client = boto3.session.Session().client(
            "s3",
            endpoint_url=site.endpoint,
            region_name=site.region,
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                max_pool_connections=CONNECTIONS,
                s3=addressing,
            ),
        )
        self._transfer = TransferConfig(
            multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )

    def read_bytes(self, uri: str) -> bytes:
        """See ObjectStore."""
        found = self.read_with_etag(uri)
        if found is None:
            raise NotFoundError(f"{uri}: no such object at {self._endpoint}. Was it deleted, or never written?")
        return found[0]

    def read_with_etag(self, uri: str) -> tuple[bytes, str] | None:
        """See ObjectStore."""
        try:
            with self._translated(uri):
                answer = self._client.get_object(**_address(uri))
                return answer["Body"].read(), answer["ETag"]
        except NotFoundError:
            return None

    def put_bytes(self, uri: str, data: bytes, *, content_type: str = "application/json") -> None:
        """See ObjectStore."""
        with self._translated(uri):
            self._client.put_object(**_address(uri), Body=data, ContentType=content_type)

    def put_if(self, uri: str, data: bytes, *, etag: str | None) -> str:
        """See ObjectStore."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            with self._translated(uri):
                answer = self._client.put_object(
                    **_address(uri), Body=data, ContentType="application/json", **condition
                )
        except NotFoundError as error:  # S3's answer to If-Match on an object that was deleted
            raise LostRaceError(f"{uri} was deleted since it was read. Read it again.") from error
        return str(answer["ETag"])

    def exists(self, uri: str) -> bool:
        """See ObjectStore."""
        return self.describe(uri) is not None

    def describe(self, uri: str) -> StoredObject | None:
        """See ObjectStore."""
        try:
            with self._translated(uri):
                answer = self._client.head_object(**_address(uri))
        except NotFoundError:
            return None
        return StoredObject(uri, answer["ContentLength"], answer["ETag"], answer["Metadata"].get("sha256"))

    def list(self, prefix_uri: str) -> Iterator[StoredObject]:
        """See ObjectStore."""
        address = _address(prefix_uri)
        with self._translated(prefix_uri):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=address["Bucket"], Prefix=address["Key"]
            )
            for page in pages:
                for item in page.get("Contents", []):
                    yield StoredObject(f"s3://{address['Bucket']}/{item['Key']}", item["Size"], item["ETag"])

    def get_file(self, uri: str, path: Path, progress: Progress | None = None) -> None:
        """See ObjectStore."""
        address = _address(uri)
        with self._translated(uri):
            self._client.download_file(
                address["Bucket"], address["Key"], str(path), Callback=progress, Config=self._transfer
            )

    def put_file(self, path: Path, uri: str, progress: Progress | None = None, *, sha256: str | None = None) -> None:
        """See ObjectStore."""
        address = _address(uri)
        extra: dict[str, Any] = {"ChecksumAlgorithm": "SHA256"}
        if sha256:
            extra["Metadata"] = {"sha256": sha256}
        with self._translated(uri):
            self._client.upload_file(
                str(path), address["Bucket"], address["Key"], ExtraArgs=extra, Callback=progress, Config=self._transfer
            )

    def copy(self, source_uri: str, target_uri: str) -> None:
        """See ObjectStore."""
        source, target = _address(source_uri), _address(target_uri)
        with self._translated(source_uri):
            head = self._client.head_object(**source)
            # a copy in parts drops the metadata unless it is given again
            extra = {"Metadata": head["Metadata"], "MetadataDirective": "REPLACE", "ContentType": head["ContentType"]}
            self._client.copy(source, target["Bucket"], target["Key"], ExtraArgs=extra, Config=self._transfer)

    def delete(self, uris: Sequence[str]) -> None:
        """See ObjectStore."""
        addresses = [_address(uri) for uri in uris]
        for bucket in sorted({address["Bucket"] for address in addresses}):
            keys = [{"Key": address["Key"]} for address in addresses if address["Bucket"] == bucket]
            for first in range(0, len(keys), LARGEST_DELETE):
                with self._translated(f"s3://{bucket}/{keys[first]['Key']}"):
                    answer = self._client.delete_objects(
                        Bucket=bucket, Delete={"Objects": keys[first : first + LARGEST_DELETE], "Quiet": True}
                    )
                if refused := answer.get("Errors"):
                    raise PipelineError(
                        f"s3://{bucket}/{refused[0]['Key']} and {len(refused) - 1} more were not deleted: "
                        f"{refused[0].get('Code')}. The credentials need s3:DeleteObject."
                    )

    @contextmanager
    def _translated(self, uri: str) -> Iterator[None]:
        """Turn every error of boto3 into one of ours; the only place that knows them."""
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
            raise InputError(f"credentials for {self._endpoint} are incomplete: {error}. Set both parts.") from error
        except (aws.NoCredentialsError, aws.CredentialRetrievalError, aws.MetadataRetrievalError) as error:
            raise UnavailableError(
                f"no credentials for {self._endpoint}: neither AWS_ACCESS_KEY_ID nor the pod's cloud identity gave "
                f"any ({type(error).__name__}). If this lasts, set object_store.credentials_secret in the site file."
            ) from error
        except (aws.BotoCoreError, RetriesExceededError) as error:
            raise UnavailableError(
                f"{self._endpoint} does not answer for {uri} ({type(error).__name__}: {str(error)[:QUOTED_CHARS]}). "
                "Is object_store.endpoint in the site file right, and is it up?"
            ) from error

    def _refusal(self, error: Exception, uri: str) -> PipelineError:
        answer = error.response if isinstance(error, aws.ClientError) else {}
        code = _code(error)
        status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", SERVER_ERROR))
        bucket = _address(uri)["Bucket"]
        if code == "NoSuchBucket":
            return self._no_bucket(uri)
        for codes, kind, words in (
            (ABSENT, NotFoundError, f"{uri}: no such object at {self._endpoint}. Was it deleted, or never written?"),
            (LOST_RACE, LostRaceError, f"{uri} was written by somebody else since it was read. Read it again."),
            (
                DENIED,
                InputError,
                f"{self._endpoint} refuses the credentials for {uri} ({code}). Let them read, write and list {bucket}.",
            ),
            (
                ELSEWHERE,
                InputError,
                f"{self._endpoint}: {bucket} is in another region ({code}). Mend object_store.region in the site file.",
            ),
        ):
            if code in codes:
                return kind(words)
        if code in EXPIRED | BUSY or status >= SERVER_ERROR:
            return UnavailableError(f"{self._endpoint} answered {code or status} for {uri}; a retry may help.")
        return InputError(
            f"{self._endpoint} refused {uri}: {code or status}, {str(error)[:QUOTED_CHARS]}; expected an S3 store that "
            "takes it. Look its code up in the store's manual, or mend object_store in the site file."
        )

    def _has_bucket(self, uri: str) -> bool:
        """A HEAD that finds nothing does not say whether object or bucket is missing."""
        try:
            self._client.head_bucket(Bucket=_address(uri)["Bucket"])
        except aws.ClientError as error:
            return _code(error) not in ABSENT_WITHOUT_BODY
        return True

    def _no_bucket(self, uri: str) -> InputError:
        return InputError(
            f"bucket {_address(uri)['Bucket']} does not exist at {self._endpoint}. Make it, or mend "
            "object_store.bucket or object_store.endpoint in the site file."
        )


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, aws.ClientError) else ""


def _address(uri: str) -> dict[str, str]:
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket or not key:
        raise InputError(f"{uri!r} is no object's address; expected s3://<bucket>/<key>.")
    return {"Bucket": bucket, "Key": key}
