"""Bounds the size and the duration of an answer of an API, whatever the server does.

httpx 0.28 bounds only the wait for the next bytes: it would read for ever an answer that never ends, or that brings a
byte every few seconds. The reader of a file bounds its body itself, because it knows the announced size, and marks its
requests with FILE_BODY.
"""

import time
from collections.abc import Iterator
from typing import Any

import httpx

ANSWER_BYTES = 64 * 2**20
"""The file list of a repository with 100,000 files has about 30 MB (huggingface_hub 1.21, `files_metadata`)."""

ANSWER_S = 120.0
MARK = "slipway.file-body"
FILE_BODY: dict[str, Any] = {MARK: True}
"""Extensions of a request whose body the caller bounds. httpx passes them on to redirected requests."""


class UnboundedAnswerError(Exception):
    """The server sends more than any expected answer."""


def bound(response: httpx.Response, *, answer_s: float = ANSWER_S) -> None:
    """Make the response's body raise once it exceeds a limit. Used as a client's event hook, before the body is read.

    Args:
        response: of any request.
        answer_s: how long the body may take.

    Raises:
        UnboundedAnswerError: the server compresses the answer, although the request forbids it: a few compressed bytes
            can hold any number of bytes.
    """
    if MARK in response.request.extensions and response.is_success:
        return
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise UnboundedAnswerError(f"an answer compressed by {encoding[:20]!r}, which was not accepted")
    assert isinstance(response.stream, httpx.SyncByteStream)
    response.stream = _Bounded(response.stream, answer_s)


class _Bounded(httpx.SyncByteStream):
    def __init__(self, inner: httpx.SyncByteStream, answer_s: float) -> None:
        self._inner, self._answer_s = inner, answer_s

    def __iter__(self) -> Iterator[bytes]:
        left_bytes, deadline = ANSWER_BYTES, time.monotonic() + self._answer_s
        for chunk in self._inner:
            left_bytes -= len(chunk)
            if left_bytes < 0:
                raise UnboundedAnswerError(f"an answer of more than {ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise httpx.ReadTimeout(f"the answer was not complete after {self._answer_s:g} s")
            yield chunk

    def close(self) -> None:
        self._inner.close()
