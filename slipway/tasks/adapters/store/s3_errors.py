"""Turns errors of botocore's S3 client into Slipway's.

Codes are those of https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html; after a HEAD request, which has
no body, the status.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore import exceptions as aws
from urllib3.exceptions import HTTPError

from slipway.tasks.adapters.store.object_store import DeniedError, LostRaceError, NotFoundError, UnsupportedError
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.fit.site_objects import OBJECT_STORE_POLICY

S3_ATTEMPTS = 3
"""How often botocore, in its mode `standard`, sends a request in all: again after a lost connection, a timeout, a
throttling code or a status of 500, 502, 503 or 504. What fails then becomes one of the errors below."""

BASE_POLICY = "object-store"  # k8s_manifests/base/networkpolicy-slipway-object-store.yaml
QUOTED_CHARS = 120

NO_UPLOAD = "NoSuchUpload"
ABSENT_WITHOUT_BODY = frozenset({"404", "NotFound"})
ABSENT = ABSENT_WITHOUT_BODY | {"NoSuchKey"}
OTHER_ETAG = frozenset({"PreconditionFailed", "412"})
LOST_RACE = OTHER_ETAG | {"ConditionalRequestConflict", "409"}
DENIED = frozenset(
    {"AccessDenied", "403", "Forbidden", "401", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled"}
)
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
BUSY = frozenset({"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "RequestTimeTooSkewed", "429"})
UNSUPPORTED = frozenset({"NotImplemented", "501"})
ELSEWHERE = frozenset(
    {"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
SERVER_ERROR = 500


class ChangedSourceError(Exception):
    """What is copied was changed meanwhile. Never leaves the adapter."""


class S3Errors:
    """Errors of one client."""

    def __init__(self, client: Any, endpoint: str) -> None:
        """`endpoint` is how messages name the store."""
        self._client, self._endpoint = client, endpoint

    @contextmanager
    def translated(self, uri: str) -> Iterator[None]:
        """Raise Slipway's error for each error of the client; the object at `uri` is named in it."""
        with self._reached(uri), self._accepted(uri):
            yield

    @contextmanager
    def _accepted(self, uri: str) -> Iterator[None]:
        """Translate what the store answered. To ask it for more may fail as any request does."""
        try:
            yield
        except ChangedSourceError as error:
            raise UnavailableError(
                f"{uri} changed at {self._endpoint} while it was copied", remedy="Run the step again."
            ) from error
        except aws.ClientError as error:
            if code_of(error) in ABSENT_WITHOUT_BODY and not self.has_bucket(uri):
                raise self._no_bucket(uri) from error
            raise self._refusal(error, uri) from error

    @contextmanager
    def _reached(self, uri: str) -> Iterator[None]:
        """Translate why the store gave no answer, or only a part of one."""
        try:
            yield
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
        except (aws.BotoCoreError, HTTPError) as error:
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
        code, bucket = code_of(error), address_of(uri)["Bucket"]
        if code in ABSENT | {"NoSuchBucket"}:
            return self.absent(uri) if code in ABSENT else self._no_bucket(uri)
        if code in LOST_RACE:
            return LostRaceError(f"{uri} was changed by another writer after it was read", remedy="Read it again.")
        # no upload: it was completed, and the answer did not arrive; or a rule of the bucket removed it
        if code in EXPIRED | BUSY | {NO_UPLOAD} or (
            code not in DENIED | ELSEWHERE | UNSUPPORTED and status >= SERVER_ERROR
        ):
            return UnavailableError(
                f"{self._endpoint} cannot serve {uri} now", found=code or status, remedy="Run the step again."
            )
        if code in DENIED:
            remedy = f"Allow them to read, write and list {bucket}."
            return DeniedError(f"{self._endpoint} rejects the credentials for {uri}", found=code, remedy=remedy)
        if code in ELSEWHERE:
            remedy = "Correct object_store.region in the site file."
            return InputError(f"{self._endpoint}: {bucket} is in another region", found=code, remedy=remedy)
        kind = UnsupportedError if code in UNSUPPORTED else InputError
        return kind(
            f"{self._endpoint} rejected a request for {uri}",
            found=f"{code or status}, {str(error)[:QUOTED_CHARS]}",
            expected="a store that implements S3",
            remedy="Look the code up in the store's manual, or correct object_store in the site file.",
        )

    def absent(self, uri: str) -> NotFoundError:
        """The error that there is no such object."""
        return NotFoundError(
            f"{uri} does not exist at {self._endpoint}", remedy="Run the step that writes it, or restore it."
        )

    def has_bucket(self, uri: str) -> bool:
        """A HEAD request that finds nothing does not say whether the object or the bucket is missing."""
        try:
            self._client.head_bucket(Bucket=address_of(uri)["Bucket"])
        except aws.ClientError as error:
            return code_of(error) not in ABSENT_WITHOUT_BODY
        return True

    def _no_bucket(self, uri: str) -> InputError:
        return InputError(
            f"bucket {address_of(uri)['Bucket']} does not exist at {self._endpoint}",
            remedy="Run `slipway setup`, which creates it, or correct object_store.bucket or object_store.endpoint in "
            "the site file.",
        )


def code_of(error: Exception) -> str:
    """S3's code of an error; empty when it has none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, aws.ClientError) else ""


def address_of(uri: str) -> dict[str, str]:
    """Bucket and key as botocore takes them.

    Raises:
        InputError: it is not `s3://<bucket>/<key>`.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket or not key:
        raise InputError("invalid address of an object", found=repr(uri), expected="s3://<bucket>/<key>")
    return {"Bucket": bucket, "Key": key}
