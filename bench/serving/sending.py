"""Sends one hostile request over a connection of its own, and judges what came back."""

import json
import socket
import time
from dataclasses import dataclass
from http.client import OK, SERVICE_UNAVAILABLE, HTTPException, HTTPResponse
from typing import NoReturn

from bench.serving.strangers import Manner, Request

DEADLINE_S = 60.0
"""No answer may take longer: as long as docs/openai.md gives a client to send its request."""
ANSWERED = frozenset({200, 400, 404, 413, 501, 503})
"""501 is Triton's, for `infer` over HTTP to a model that answers in parts."""
REFUSED_BY_HTTP = frozenset({403, 405, 408, 411, 415, 417, 426, 431, 505})
"""Further answers to what is no proper request of HTTP."""
RETRY = "Ask again."
SMALLEST_LIMIT_BYTES = 256 << 10
"""A larger body may be refused while it is sent: its client then sees a connection that is closed."""
CLOSED = 0
SHOWN = 400


@dataclass(frozen=True)
class Target:
    """A model behind a front."""

    host: str
    port: int
    model: str = "demo"
    grpc_port: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What came back: a status, CLOSED without one, and what is wrong with it, if anything."""

    request: object
    status: int | str
    seconds: float
    complaint: str = ""
    answer: str = ""

    def __str__(self) -> str:
        return f"{self.complaint} after {self.seconds:.1f} s: {self.request} -> {self.answer}"


def send(target: Target, request: Request) -> Outcome:
    """Send it and wait for the end of the answer."""
    began, status, body, kind = time.monotonic(), CLOSED, b"", ""
    failure: Exception | None = None
    try:
        with socket.create_connection((target.host, target.port), timeout=DEADLINE_S) as connection:
            _write(connection, request)
            if request.manner is Manner.LEFT:
                return Outcome(request, CLOSED, time.monotonic() - began)
            with HTTPResponse(connection, method=request.method) as response:
                response.begin()
                status, kind = response.status, response.headers.get("Content-Type", "")
                body = response.read()
                # binary tensors that the request asked for follow the JSON (Triton's extension "binary tensor data")
                body = body[: int(response.headers.get("Inference-Header-Content-Length", len(body)))]
    except (OSError, HTTPException) as error:
        failure = error
    seconds = time.monotonic() - began
    text = body.decode("utf-8", "surrogateescape")
    complaint = _late(seconds) or (_unanswered(request, failure) if failure else judged(request, status, kind, text))
    return Outcome(request, status, seconds, complaint, text[:SHOWN] if complaint else "")


def _write(connection: socket.socket, request: Request) -> None:
    try:
        for piece in request.pieces():
            connection.sendall(piece)
        if request.manner in (Manner.HALF_CLOSED, Manner.CUT):
            connection.shutdown(socket.SHUT_WR)
    except (ConnectionResetError, BrokenPipeError):
        return  # it may have been refused before its end: the answer says so


def _late(seconds: float) -> str:
    return f"later than {DEADLINE_S:g} s" if seconds > DEADLINE_S else ""


def _unanswered(request: Request, failure: Exception) -> str:
    """A complaint where a request has no answer that deserved one."""
    may_close = not request.is_well_formed or len(request.body) > SMALLEST_LIMIT_BYTES
    return "" if may_close and not isinstance(failure, TimeoutError) else repr(failure)


def judged(request: Request, status: int, kind: str, text: str) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if not request.is_well_formed and status in ANSWERED | REFUSED_BY_HTTP:
        return ""
    if status not in ANSWERED:
        return f"status {status}"
    documents = [text]
    if kind.startswith("text/event-stream"):
        documents = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        documents = [each for each in documents if each != "[DONE]"]
    try:
        text.encode()
        parsed = [json.loads(each, parse_constant=_refuse) for each in documents]
    except ValueError as error:
        return f"not JSON: {error}"
    errors = [each["error"] for each in parsed if isinstance(each, dict) and each.get("error")]
    if status != OK and not errors:
        return f"status {status} without a text"
    if status == SERVICE_UNAVAILABLE:
        said = errors[0]["message"] if isinstance(errors[0], dict) else errors[0]
        return "" if said.endswith(RETRY) else f"status 503: {said}"
    return ""


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} in an answer")
