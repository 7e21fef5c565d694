"""Pages of other origins that may use the API from a browser: the protocol of https://fetch.spec.whatwg.org/#http-cors."""

from collections.abc import Collection
from http import HTTPMethod, HTTPStatus

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

ANY = "*"
METHODS = "GET, POST, OPTIONS"
MAX_AGE_S = 600
"""How long a browser may remember an answer to its question; Chromium remembers none longer than two hours."""


class Browsers:
    """Tells browsers which pages may read answers. No cookies are involved, so any origin may be allowed."""

    def __init__(self, origins: Collection[str]) -> None:
        """`origins` as a browser writes them, such as https://ui.example; `*` allows all."""
        self._origins = frozenset(origins)

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """A signal of aiohttp, before the headers of a response are sent."""
        origin = request.headers.get(hdrs.ORIGIN, "")
        if origin and self._allows(origin):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = ANY if ANY in self._origins else origin
            response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = "X-Request-Id"
            response.headers.add(hdrs.VARY, hdrs.ORIGIN)

    def middleware(self) -> Middleware:
        """Answers a browser that asks whether a page may send a request; others are handed on."""

        @web.middleware
        async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
            asks = request.method == HTTPMethod.OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers
            if not asks or not self._allows(request.headers.get(hdrs.ORIGIN, "")):
                return await handler(request)
            headers = {
                hdrs.ACCESS_CONTROL_ALLOW_METHODS: METHODS,
                hdrs.ACCESS_CONTROL_ALLOW_HEADERS: request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, ""),
                hdrs.ACCESS_CONTROL_MAX_AGE: str(MAX_AGE_S),
            }
            return web.Response(status=HTTPStatus.NO_CONTENT, headers=headers)

        return answer

    def _allows(self, origin: str) -> bool:
        return ANY in self._origins or origin in self._origins
