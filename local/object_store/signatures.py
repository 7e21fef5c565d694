"""Checks that an S3 request is signed with the server's credentials (AWS Signature Version 4).

moto checks signatures too, but only of keys that its own IAM created, and never at /moto-api, which can reset it.
botocore, which signs the requests, also computes the signature here. Signatures in query strings (presigned URLs) are
taken for reading an object. Signed chunks are refused, and checksums other than CRC32 after a body: nothing in this
project sends them.
https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
"""

import base64
import hashlib
import hmac
import re
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from botocore.auth import (
    SIGV4_TIMESTAMP,
    STREAMING_UNSIGNED_PAYLOAD_TRAILER,
    UNSIGNED_PAYLOAD,
    S3SigV4Auth,
    S3SigV4QueryAuth,
)
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.core.request import environ_key_for_header

SKEW = timedelta(minutes=15)
CRC32 = "x-amz-checksum-crc32"
LINE_END = b"\r\n"
CHUNK_HEAD = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
TRAILER = re.compile(rb"x-amz-checksum-crc32:([A-Za-z0-9+/=]+)\r\n\r\n")
ALWAYS_SIGNED = {"host", "x-amz-content-sha256", "x-amz-date"}
UNSIGNED = {UNSIGNED_PAYLOAD, STREAMING_UNSIGNED_PAYLOAD_TRAILER}
READING = {"GET", "HEAD"}
BAD_REQUEST = "400 Bad Request"
SCOPE = re.compile(r"(?P<key>[^/]+)/\d{8}/(?P<region>[^/]+)/s3/aws4_request")
LIFETIME = re.compile(r"[1-9][0-9]{0,5}")
"""Seconds; S3 takes a week at most, which has six digits."""
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,\s]+)/\d{8}/(?P<region>[^/,\s]+)/s3/aws4_request,\s*"
    r"SignedHeaders=(?P<headers>[^,\s]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)


class Refusal(Exception):  # noqa: N818 - an answer, in the terms of S3
    """A refusal in the terms of S3: an error code and a message."""

    def __init__(self, code: str, message: str, status: str = "403 Forbidden") -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


def check_headers(environ: Mapping[str, Any], credentials: Credentials, now: datetime) -> None:
    """Check a request except for its body; the signature covers the body's digest in X-Amz-Content-SHA256.

    Raises:
        Refusal: the request is not signed, not with these credentials, or at another time.
    """
    authorization = AUTHORIZATION.fullmatch(environ.get("HTTP_AUTHORIZATION", ""))
    if authorization is None:
        raise Refusal("AccessDenied", "Access Denied")
    if not hmac.compare_digest(authorization["key"].encode(), credentials.access_key.encode()):
        raise Refusal("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
    signed = authorization["headers"].split(";")
    # every header that S3 acts on must be signed, or somebody could add one to a recorded request
    unsigned = {name for name in _amazon_headers(environ) | ALWAYS_SIGNED if name not in signed}
    if unsigned:
        raise Refusal("AccessDenied", "There were headers present in the request which were not signed")
    _check_time(environ["HTTP_X_AMZ_DATE"], now)
    if not hmac.compare_digest(
        _signature(environ, credentials, authorization["region"], signed), authorization["signature"]
    ):
        raise Refusal("SignatureDoesNotMatch", "The request signature we calculated does not match the one provided.")


def is_link(environ: Mapping[str, Any]) -> bool:
    """Whether a request would read an object with a signature in its address."""
    return environ["REQUEST_METHOD"] in READING and "X-Amz-Signature" in _query(environ)


def check_link(environ: Mapping[str, Any], credentials: Credentials, now: datetime) -> None:
    """Check a request whose address is signed.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html

    Raises:
        Refusal: the address is not signed with these credentials, or has expired.
    """
    query = _query(environ)
    scope = SCOPE.fullmatch(query.get("X-Amz-Credential", ""))
    expires = query.get("X-Amz-Expires", "")
    if scope is None or query.get("X-Amz-SignedHeaders") != "host" or not LIFETIME.fullmatch(expires):
        raise Refusal("AuthorizationQueryParametersError", "Query-string authentication is incomplete.", BAD_REQUEST)
    if not hmac.compare_digest(scope["key"].encode(), credentials.access_key.encode()):
        raise Refusal("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
    signed_at = _time(query.get("X-Amz-Date", ""))
    if not signed_at - SKEW <= now <= signed_at + timedelta(seconds=int(expires)):
        raise Refusal("AccessDenied", "Request has expired")
    unsigned = {name: value for name, value in query.items() if name != "X-Amz-Signature"}
    unsigned_query = urlencode(unsigned, quote_via=quote, safe="-_.~")
    address = f"http://{environ['HTTP_HOST']}{environ['REQUEST_URI'].partition('?')[0]}?{unsigned_query}"
    request = AWSRequest(environ["REQUEST_METHOD"], address, {"host": environ["HTTP_HOST"]})
    request.context["timestamp"] = query["X-Amz-Date"]
    signer = S3SigV4QueryAuth(credentials, "s3", scope["region"])
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    if not hmac.compare_digest(str(signature).encode(), query["X-Amz-Signature"].encode()):
        raise Refusal("SignatureDoesNotMatch", "The request signature we calculated does not match the one provided.")


def _query(environ: Mapping[str, Any]) -> dict[str, str]:
    return dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))


def check_body(environ: Mapping[str, Any], body: bytes) -> None:
    """Compare the body with the digest that was signed, or else with the checksum that follows it.

    Raises:
        Refusal: the body does not match.
    """
    signed = environ["HTTP_X_AMZ_CONTENT_SHA256"]
    if signed == STREAMING_UNSIGNED_PAYLOAD_TRAILER:
        _check_trailer(environ, body)
    if signed not in UNSIGNED and not hmac.compare_digest(signed.encode(), hashlib.sha256(body).hexdigest().encode()):
        message = "The provided 'x-amz-content-sha256' header does not match what was computed."
        raise Refusal("XAmzContentSHA256Mismatch", message, "400 Bad Request")


def _check_trailer(environ: Mapping[str, Any], body: bytes) -> None:
    """Compare an object's bytes, which come in chunks of a protocol within HTTP's, with the CRC32 after the last one.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html
    """
    checksum, length, position, size = 0, 0, 0, -1
    while size != 0:
        head = CHUNK_HEAD.match(body, position)
        if head is None:
            raise _incomplete()
        size = int(head[1], 16)
        chunk = body[head.end() : head.end() + size]
        checksum, length, position = zlib.crc32(chunk, checksum), length + len(chunk), head.end() + len(chunk)
        if size and body[position : position + 2] != LINE_END:
            raise _incomplete()
        position += 2 if size else 0
    if str(length) != environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH"):
        raise _incomplete()
    trailer = TRAILER.fullmatch(body, position)
    if trailer is None or environ.get("HTTP_X_AMZ_TRAILER") != CRC32:
        message = "The value specified in the x-amz-trailer header is not supported"
        raise Refusal("InvalidRequest", message, "400 Bad Request")
    if base64.b64encode(checksum.to_bytes(4, "big")) != trailer[1]:
        message = "The CRC32 you specified did not match the calculated checksum."
        raise Refusal("BadDigest", message, "400 Bad Request")


def _incomplete() -> Refusal:
    return Refusal("IncompleteBody", "The request body terminated unexpectedly", "400 Bad Request")


def _amazon_headers(environ: Mapping[str, Any]) -> set[str]:
    names = {key.removeprefix("HTTP_").lower().replace("_", "-") for key in environ if key.startswith("HTTP_")}
    preserved = environ.get("moto.preserved_header_names", {})  # names that contain an underscore
    spelled = {name.lower().replace("_", "-"): name.lower() for name in preserved.values()}
    return {spelled.get(name, name) for name in names if name.startswith("x-amz-")}


def _time(stamp: str) -> datetime:
    try:
        return datetime.strptime(stamp, SIGV4_TIMESTAMP).replace(tzinfo=UTC)
    except ValueError as error:
        raise Refusal("AccessDenied", "X-Amz-Date is not a time of Signature Version 4") from error


def _check_time(stamp: str, now: datetime) -> None:
    if abs(now - _time(stamp)) > SKEW:
        message = "The difference between the request time and the current time is too large."
        raise Refusal("RequestTimeTooSkewed", message)


def _signature(environ: Mapping[str, Any], credentials: Credentials, region: str, signed: list[str]) -> str:
    query = environ.get("QUERY_STRING", "")
    path = environ["REQUEST_URI"].partition("?")[0]
    headers = {name: environ.get(environ_key_for_header(name), "") for name in signed}
    request = AWSRequest(environ["REQUEST_METHOD"], f"http://{environ['HTTP_HOST']}{path}?{query}", headers)
    request.context["timestamp"] = environ["HTTP_X_AMZ_DATE"]
    signer = S3SigV4Auth(credentials, "s3", region)
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))
