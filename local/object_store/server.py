"""S3 that accepts only signed requests within the rights of their account, one at a time.

Each change is persisted before the request is answered.
"""

import io
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from botocore.credentials import Credentials

from local.object_store import strict
from local.object_store.identities import DENIED, Identities, address
from local.object_store.signatures import Refusal, check_body, check_headers, check_link, is_link

READING = {"GET", "HEAD"}
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class SignedS3:
    """A WSGI application in front of moto's.

    One request at a time: moto compares an ETag and then writes, so two writers could otherwise both see the old one.
    """

    def __init__(
        self, s3: Application, credentials: Credentials, identities: Identities, keep: Callable[[str, str], None]
    ) -> None:
        """`keep` is called with bucket and key of each request that may change an object, before it is answered."""
        self._s3, self._credentials, self._identities, self._keep = s3, credentials, identities, keep
        self._lock = threading.Lock()
        self._uploads = strict.Uploads()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request."""
        try:
            body = self._checked_body(environ)
            self._identities.check(environ, body)
        except Refusal as refusal:
            return _refused(refusal, environ, start_response)
        environ["wsgi.input"] = io.BytesIO(body)
        answered: list[Any] = []
        with self._lock:
            try:
                strict.check(environ, body)
            except Refusal as refusal:
                return _refused(refusal, environ, start_response)
            if (page := self._uploads.answer(environ)) is not None:
                start_response("200 OK", [("Content-Type", "application/xml"), ("Content-Length", str(len(page)))])
                return [page]
            answer = list(self._s3(environ, lambda *status: answered.append(status)))
            if environ["REQUEST_METHOD"] not in READING:
                self._keep(*address(environ))
                self._uploads.look()
        if answered[-1][0].startswith("404") and address(environ)[1] and self._identities.hides_absence(environ):
            return _refused(Refusal("AccessDenied", DENIED), environ, start_response)
        start_response(*answered[-1])
        return answer

    def _checked_body(self, environ: dict[str, Any]) -> bytes:
        now = datetime.now(UTC)
        if is_link(environ):
            check_link(environ, self._credentials, now)
            return b""
        check_headers(environ, self._credentials, now)
        body = self._body(environ)
        check_body(environ, body)
        return body

    def _body(self, environ: dict[str, Any]) -> bytes:
        """Read the body. Called only for a request with a valid signature."""
        is_chunked = environ.get("wsgi.input_terminated", False)  # in HTTP's chunks, which have no length in a header
        if is_chunked and "HTTP_X_AMZ_DECODED_CONTENT_LENGTH" not in environ:
            message = "You must provide the Content-Length HTTP header."
            raise Refusal("MissingContentLength", message, "411 Length Required")
        body: bytes = environ["wsgi.input"].read(-1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0))
        return body


def _refused(refusal: Refusal, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    text = f"<Error><Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message></Error>".encode()
    start_response(refusal.status, [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]
