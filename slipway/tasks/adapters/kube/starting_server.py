"""Repeats what an API server refuses while it starts: it listens before it has read its roles and accounts.

Where no load balancer waits until an API server is ready, a step can meet one that refuses everybody. To take that for
a Role that is missing would fail a release for good.
"""

import logging
import re
from typing import Any

from slipway.tasks.adapters.clock import Clock

STARTING_S, PAUSE_S, READY_TIMEOUT_S = 60.0, 1.0, 5
UNAUTHORIZED, FORBIDDEN = 401, 403
NOT_ALLOWED = re.compile(r'forbidden: User \\?".*" cannot \w+ (?:resource|path) ')
"""The words of a refusal by RBAC, in JSON or not; one by admission was allowed to ask
(apiserver/pkg/endpoints/handlers/responsewriters, Kubernetes 1.36)."""

log = logging.getLogger(__name__)


def wait_while_starting(api: Any, clock: Clock) -> None:
    """Let a kubernetes.client.ApiClient repeat a request that may have been refused too early.

    It is repeated until /readyz says that the server had started beforehand, for STARTING_S at most. That is asked
    without credentials, which may be what is refused, and with them, where strangers are told nothing. A server that
    has not read its roles refuses both (kube-apiserver 1.36).
    """
    send = api.rest_client.request

    def request(method: str, url: str, **options: Any) -> Any:
        from kubernetes.client import ApiException

        began, is_ready = clock.monotonic(), False
        while True:
            try:
                return send(method, url, **options)
            except ApiException as error:
                if not _of_authorizer(error) or is_ready or clock.monotonic() - began >= STARTING_S:
                    raise
                log.warning("refused with %s; asking whether the API server is still starting", error.status)
            who: tuple[dict[str, str], ...] = ({}, options.get("headers") or {})
            is_ready = any(_is_ready(send, api.configuration.host, headers) for headers in who)
            if not is_ready:
                clock.sleep(PAUSE_S)

    api.rest_client.request = request


def _of_authorizer(error: Any) -> bool:
    return error.status == UNAUTHORIZED or (error.status == FORBIDDEN and bool(NOT_ALLOWED.search(_text(error.body))))


def _text(body: Any) -> str:
    return body.decode(errors="replace") if isinstance(body, bytes) else str(body)


def _is_ready(send: Any, host: str, headers: dict[str, str]) -> bool:
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        send("GET", f"{host}/readyz", headers=headers, _request_timeout=READY_TIMEOUT_S)
    except (ApiException, HTTPError):
        return False
    return True
