"""TLS that costs nothing until a connection uses it: most Airflows are reached over http, through a port-forward."""

import functools
import ssl
from typing import Any

import httpx
from typing_extensions import override


class LateContext(ssl.SSLContext):
    """The context of httpx, which reads the certificate authorities in 45 ms of CPU, created with the first connection.

    Until then it trusts nobody.
    """

    @functools.cached_property
    def _context(self) -> ssl.SSLContext:
        return httpx.create_ssl_context()

    @override
    def set_alpn_protocols(self, *arguments: Any) -> None:
        self._context.set_alpn_protocols(*arguments)

    @override
    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return self._context.wrap_socket(*arguments, **options)

    @override
    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return self._context.wrap_bio(*arguments, **options)
