"""The body of a request, unpacked within bounds before anything reads it."""

import zlib
from http import HTTPStatus

from aiohttp import web

from slipway.tasks.serving.openai_api.http.errors import ApiError

UNPACKED_BYTES = 1 << 20
"""A compressed body: what the front lets through for every model (slipway/tasks/serving/rendered/front_routes.py)."""
GZIP, DEFLATE, IDENTITY = "gzip", "deflate", "identity"
WINDOWS = {GZIP: zlib.MAX_WBITS | 16, DEFLATE: zlib.MAX_WBITS}
"""zlib's argument for the container of each encoding."""


async def read_body(request: web.Request) -> bytes:
    """The bytes that the client meant; aiohttp must not have unpacked them.

    Raises:
        ApiError: the encoding is not served, or the body is not of it or unpacks to more than UNPACKED_BYTES.
    """
    encoding = request.headers.get("Content-Encoding", IDENTITY).strip().lower()
    body = await request.read()
    if encoding == IDENTITY:
        return body
    if encoding not in WINDOWS:
        raise ApiError(
            f"the Content-Encoding {encoding[:64]!r} is not served; expected one of {', '.join(WINDOWS)}. "
            "Send the request as it is, or with one of them.",
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        )
    return unpacked(body, encoding)


def unpacked(body: bytes, encoding: str) -> bytes:
    """A compressed body as it was before.

    Raises:
        ApiError: it is damaged or cut off, something follows it, or it has more than UNPACKED_BYTES.
    """
    reader = zlib.decompressobj(WINDOWS[encoding])
    try:
        whole = reader.decompress(body, UNPACKED_BYTES + 1)
    except zlib.error as error:
        raise ApiError(f"the request is not valid {encoding}: {error}. Send it again.") from error
    if len(whole) > UNPACKED_BYTES:
        raise ApiError(
            f"the compressed request has more than {UNPACKED_BYTES} bytes. Send it without Content-Encoding.",
            status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    if not reader.eof or reader.unused_data:
        raise ApiError(f"the request is not one whole {encoding} stream. Send it again.")
    return whole
