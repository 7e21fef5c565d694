"""Documents of the object store as the page reads them: often, so each is fetched again only when it has changed."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_BYTES = 4 << 20
"""Of one document. A channel with 200 events of 2,000 characters has half a megabyte."""
AT_ONCE = 16
MISSING, UNCHANGED = ("404", "NoSuchKey"), ("304", "NotModified")


class Documents:
    """Small documents by their `s3://` URI, with the ETag that each had when it was read."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[str, bytes]] = {}

    def read(self, uris: "Iterable[str]", client: Any) -> dict[str, bytes]:
        """The documents that exist, by URI.

        Args:
            uris: which to read.
            client: a boto3 client; one may serve several threads.

        Raises:
            botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError: the store refused, or did not answer.
        """
        wanted = [*uris]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(lambda uri: self._one(uri, client), wanted)
            return {uri: data for uri, data in zip(wanted, found, strict=True) if data is not None}

    def _one(self, uri: str, client: Any) -> bytes | None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        etag, data = self._read.get(uri, ("", b""))
        try:
            answer = client.get_object(Bucket=bucket, Key=key, **({"IfNoneMatch": etag} if etag else {}))
        except client.exceptions.ClientError as error:
            code = str(error.response["Error"]["Code"])
            if code in UNCHANGED:
                return data
            if code in MISSING:
                self._read.pop(uri, None)
                return None
            raise
        body: bytes = answer["Body"].read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            return None
        self._read[uri] = (answer["ETag"], body)
        return body
