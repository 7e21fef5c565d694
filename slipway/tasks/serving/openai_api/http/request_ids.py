"""The id of a request: the client's own, or one that is made for it. Every answer has it in a header."""

import re
import secrets

from aiohttp import web

from slipway.tasks.contracts.wire.trace_context import TRACEPARENT, is_trace_parent

HEADER, OF_ANTHROPIC = "X-Request-Id", "Request-Id"
"""Anthropic's clients read the second one."""
MESSAGES = "/v1/messages"
"""Anthropic's route, and the folder of its others."""
CLIENTS = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""Ids of clients that are repeated. Others could break a line of a log, or are no ids."""
REQUEST_ID = web.RequestKey("request_id", str)


def request_id(request: web.BaseRequest) -> str:
    """The request's id, which stays the same as long as the request is answered."""
    if REQUEST_ID not in request:
        given = request.headers.get(HEADER, "")
        request[REQUEST_ID] = given if CLIENTS.fullmatch(given) else f"req_{secrets.token_hex(12)}"
    found: str = request[REQUEST_ID]
    return found


def trace_parent(request: web.BaseRequest) -> str:
    """The client's span of W3C Trace Context; empty where it sent none that can be continued."""
    given = request.headers.get(TRACEPARENT, "")
    return given if is_trace_parent(given) else ""


async def add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    """A signal of aiohttp, before the headers of a response are sent."""
    response.headers[HEADER] = request_id(request)
    if is_anthropics(request):
        response.headers[OF_ANTHROPIC] = request_id(request)


def is_anthropics(request: web.BaseRequest) -> bool:
    """Whether the client speaks Anthropic's API."""
    return request.path == MESSAGES or request.path.startswith(f"{MESSAGES}/")
