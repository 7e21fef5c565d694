"""What S3 refuses or answers and moto does not: lists of incomplete uploads, and the limits of two requests.

moto 5 lists every upload at once, in any order, each as begun in 2010; it deletes more than 1,000 objects in one
request; and it aborts an upload under the name of another object. Whoever cleans up by these answers would delete too
much here, or too little on S3.
https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListMultipartUploads.html and API_DeleteObjects.html
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import FakeKey, s3_backends

from local.object_store.identities import address, copied
from local.object_store.signatures import Refusal

MOST = 1000
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


class Uploads:
    """The incomplete uploads of moto's buckets, and when each began. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._began: dict[str, datetime] = {}

    def look(self) -> None:
        """Note the uploads that have begun since the last call, and forget those that ended."""
        now = datetime.now(UTC)
        current = {upload for bucket in _buckets().values() for upload in bucket.multiparts}
        self._began = {upload: self._began.get(upload, now) for upload in current}

    def answer(self, environ: Mapping[str, Any]) -> bytes | None:
        """S3's answer to ListMultipartUploads; None for any other request."""
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        name, _, key = environ["PATH_INFO"].strip("/").partition("/")
        if environ["REQUEST_METHOD"] != "GET" or "uploads" not in query or key or name not in _buckets():
            return None
        given = {part: values[0] for part, values in query.items()}
        return self._page(name, given)

    def _page(self, name: str, given: Mapping[str, str]) -> bytes:
        prefix, marker = given.get("prefix", ""), given.get("key-marker", "")
        most = min(int(given.get("max-uploads") or MOST), MOST)
        uploads = sorted(
            (upload.key_name, self._began[identity], identity)
            for identity, upload in _buckets()[name].multiparts.items()
            if upload.key_name.startswith(prefix)
        )
        after = [upload for upload in uploads if _is_after(upload, marker, given.get("upload-id-marker", ""), uploads)]
        page, more = after[:most], len(after) > most
        following = (
            f"<NextKeyMarker>{escape(page[-1][0])}</NextKeyMarker>"
            f"<NextUploadIdMarker>{escape(page[-1][2])}</NextUploadIdMarker>"
            if more
            else ""
        )
        items = "".join(
            f"<Upload><Key>{escape(key)}</Key><UploadId>{escape(identity)}</UploadId>"
            f"<Initiated>{began:%Y-%m-%dT%H:%M:%S.000Z}</Initiated></Upload>"
            for key, began, identity in page
        )
        return (
            f'<ListMultipartUploadsResult xmlns="{NAMESPACE}"><Bucket>{escape(name)}</Bucket>'
            f"<KeyMarker>{escape(marker)}</KeyMarker><Prefix>{escape(prefix)}</Prefix><MaxUploads>{most}</MaxUploads>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{following}{items}</ListMultipartUploadsResult>"
        ).encode()


def _is_after(
    upload: tuple[str, datetime, str], key: str, identity: str, uploads: list[tuple[str, datetime, str]]
) -> bool:
    """Whether an upload comes after the markers; an upload id alone is not a marker."""
    if not key:
        return True
    if upload[0] != key or not identity:
        return upload[0] > key
    began = {each[2]: each[1] for each in uploads}.get(identity)
    return began is None or (upload[1], upload[2]) > (began, identity)


def check(environ: Mapping[str, Any], body: bytes) -> None:
    """Refuse what S3 refuses and moto does not.

    Raises:
        Refusal: too many objects in one request, what is copied has another ETag than the request says, or the upload
            belongs to another object.
    """
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    name, key = address(environ)
    if environ["REQUEST_METHOD"] == "POST" and "delete" in query and body.count(b"<Object>") > MOST:
        message = "The XML you provided was not well-formed or did not validate against our published schema"
        raise Refusal("MalformedXML", message, "400 Bad Request")
    _check_source(environ)
    bucket = _buckets().get(name)
    if environ["REQUEST_METHOD"] == "DELETE" and "uploadId" in query and bucket is not None:
        upload = bucket.multiparts.get(query["uploadId"][0])
        if upload is None or upload.key_name != key:
            message = "The specified upload does not exist. The upload ID may be invalid, or the upload may have ended."
            raise Refusal("NoSuchUpload", message, "404 Not Found")


def _buckets() -> dict[str, Any]:
    buckets: dict[str, Any] = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets
    return buckets


def _check_source(environ: Mapping[str, Any]) -> None:
    wanted, source = environ.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH"), copied(environ)
    if not wanted or source is None or (bucket := _buckets().get(source[0])) is None:
        return
    item = bucket.keys.get(source[1])
    if isinstance(item, FakeKey) and item.etag.strip('"') != wanted.strip('"'):
        message = "At least one of the pre-conditions you specified did not hold"
        raise Refusal("PreconditionFailed", message, "412 Precondition Failed")
