"""Authenticates and authorizes every request before anything else reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aiohttp import web

from ..objects.resources import PODS
from ..objects.status import unauthorized
from . import urls
from .access import Access
from .authorization import Authorizer
from .identity import ADMIN, ANONYMOUS, User
from .tokens import TokenIssuer

USER = web.RequestKey("user", User)
# Since Kubernetes 1.35, opening one of these over a WebSocket (a GET) also needs `create`:
# https://github.com/kubernetes/kubernetes/issues/133515
CONNECTIONS = ("exec", "attach", "portforward")


@dataclass(frozen=True)
class Gate:
    """Identifies the sender of a request, and refuses what no role allows."""

    access: Access
    tokens: TokenIssuer
    authorizer: Authorizer

    def admit(self, request: web.Request) -> None:
        """Authenticate and authorize a request.

        Raises:
            ApiError: 401, the token is not valid; 403, no role allows the request.
        """
        request[USER] = self._authenticate(request.headers)
        info = _info(request)
        self.authorizer.require(request[USER], info)
        if info.resource == PODS.plural and info.subresource in CONNECTIONS and info.verb == "get":
            self.require(request, "create")

    def require(self, request: web.Request, verb: str) -> None:
        """Refuse an admitted request unless its user may also do `verb` with the same object.

        Raises:
            ApiError: 403.
        """
        self.authorizer.require(request[USER], replace(_info(request), verb=verb))

    @staticmethod
    def user(request: web.Request) -> User:
        """The sender of an admitted request."""
        return request[USER]

    def _authenticate(self, headers: Mapping[str, str]) -> User:
        scheme, _, token = headers.get("Authorization", "").strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS
        if self.access.is_admin(token):
            return ADMIN
        user = self.tokens.user(token)
        if user is None:
            raise unauthorized()
        return user


def _info(request: web.Request) -> urls.RequestInfo:
    return urls.read(request.method, request.path, request.query)
