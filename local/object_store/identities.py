"""What each service account may do with the laptop's S3: the policies that a cloud would attach to it.

All pods of the laptop share one key, so an account is known by the app id in its User-Agent, which pods set. A request
without one is a person's, who may do everything. Policies are read as IAM reads them, as far as Slipway's go: allowed
actions on resources with `*`, and no conditions.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree as ET

from local.object_store.signatures import Refusal

APP_ID = re.compile(r"\bapp/(?P<id>\S+)")
DENIED = "Access Denied"
Policies = Mapping[str, Mapping[str, Any]]


class Identities:
    """Decides by the policies of the accounts, by their names."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies

    def check(self, environ: Mapping[str, Any], body: bytes) -> None:
        """Check that the account may do all that a request asks for.

        Raises:
            Refusal: it may not.
        """
        account = account_of(environ)
        if account is None:
            return
        for action, resource in actions(environ, body):
            if not self._allows(account, action, resource):
                raise Refusal(
                    "AccessDenied", f"{account} is not authorized to perform: {action} on resource: {resource}"
                )

    def hides_absence(self, environ: Mapping[str, Any]) -> bool:
        """Whether S3 would not tell this account that an object does not exist."""
        account, (bucket, _) = account_of(environ), address(environ)
        return account is not None and not self._allows(account, "s3:ListBucket", f"arn:aws:s3:::{bucket}")

    def _allows(self, account: str, action: str, resource: str) -> bool:
        for statement in self._policies.get(account, {}).get("Statement", []):
            granted = action in _listed(statement["Action"])
            if granted and any(fnmatchcase(resource, each) for each in _listed(statement["Resource"])):
                return True
        return False


def account_of(environ: Mapping[str, Any]) -> str | None:
    """The service account that a request comes from; None for a person."""
    found = APP_ID.search(environ.get("HTTP_USER_AGENT", ""))
    return found["id"] if found else None


def address(environ: Mapping[str, Any]) -> tuple[str, str]:
    """Bucket and key of a request; the key of one for the bucket itself is empty."""
    path = environ["PATH_INFO"].encode("latin-1").decode(errors="replace")  # PEP 3333 has bytes as Latin-1
    bucket, _, key = path.lstrip("/").partition("/")
    return bucket, key


def copied(environ: Mapping[str, Any]) -> tuple[str, str] | None:
    """Bucket and key of what a request copies; None if it copies nothing."""
    source = environ.get("HTTP_X_AMZ_COPY_SOURCE")
    if not source:
        return None
    bucket, _, key = unquote(source.partition("?")[0]).lstrip("/").partition("/")
    return bucket, key


def actions(environ: Mapping[str, Any], body: bytes) -> Iterator[tuple[str, str]]:
    """The IAM actions that a request needs, each with its resource."""
    bucket, key = address(environ)
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    method, arn = environ["REQUEST_METHOD"], f"arn:aws:s3:::{bucket}"
    if key:
        if source := copied(environ):
            yield "s3:GetObject", f"arn:aws:s3:::{'/'.join(source)}"
        yield _object_action(method, query), f"{arn}/{key}"
    elif method == "POST" and "delete" in query:
        for each in ET.fromstring(body).iter():  # noqa: S314 - signed by the stack's own key
            if each.tag.rpartition("}")[2] == "Key":
                yield "s3:DeleteObject", f"{arn}/{each.text}"
    else:
        yield _bucket_action(method, query), arn


def _object_action(method: str, query: Mapping[str, Any]) -> str:
    if method in {"GET", "HEAD"}:
        return "s3:ListMultipartUploadParts" if "uploadId" in query else "s3:GetObject"
    if method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"
    return "s3:PutObject"


def _bucket_action(method: str, query: Mapping[str, Any]) -> str:
    if method in {"GET", "HEAD"}:
        if "uploads" in query:
            return "s3:ListBucketMultipartUploads"
        return "s3:GetBucketVersioning" if "versioning" in query else "s3:ListBucket"
    return {"PUT": "s3:CreateBucket", "DELETE": "s3:DeleteBucket"}.get(method, f"s3:{method}")


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
