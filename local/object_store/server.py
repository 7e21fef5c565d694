"""S3 that accepts only signed requests, one at a time, and persists each change before it answers."""

import io
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from botocore.credentials import Credentials

from local.object_store.signatures import Refusal, check_body, check_headers

READING = {"GET", "HEAD"}
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class SignedS3:
    """A WSGI application in front of moto's.

    One request at a time: moto compares an ETag and then writes, so two writers could otherwise both see the old one.
    """

    def __init__(self, s3: Application, access_key: str, secret_key: str, keep: Callable[[], None]) -> None:
        """`keep` is called after each request that may change an object, before the response is sent."""
        self._s3, self._credentials, self._keep = s3, Credentials(access_key, secret_key), keep
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request."""
        try:
            check_headers(environ, self._credentials, datetime.now(UTC))
            body = self._body(environ)
            check_body(environ, body)
        except Refusal as refusal:
            text = f"<Error><Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message></Error>".encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))]
            start_response(refusal.status, headers)
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]
        environ["wsgi.input"] = io.BytesIO(body)
        with self._lock:
            answer = list(self._s3(environ, start_response))
            if environ["REQUEST_METHOD"] not in READING:
                self._keep()
        return answer

    def _body(self, environ: dict[str, Any]) -> bytes:
        """Read the body. Called only for a request with a valid signature."""
        body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        return body
