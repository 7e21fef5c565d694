"""An HTTP server with one page, for Prometheus."""

import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.wire.exposition import CONTENT_TYPE

log = logging.getLogger(__name__)

KEPT_S = 30.0
"""How long a page is served again. Several scrapers, or one that is impatient, cost the store no more than one does."""
READ_TIMEOUT_S = 10


class MetricsServer(ThreadingHTTPServer):
    """Answers GET /metrics with the page, and GET /healthz as long as it runs."""

    daemon_threads = True

    def __init__(self, host: str, port: int, page: Callable[[], str], clock: Clock) -> None:
        """`page` is called for a scrape at most every KEPT_S seconds, by one thread at a time."""
        super().__init__((host, port), _Handler)
        self._make, self._clock, self._lock = page, clock, threading.Lock()
        self._kept: tuple[float, str] | None = None

    def page(self) -> str:
        """Return the page, rendered again unless the last one is recent.

        Raises:
            PipelineError: it cannot be made now. An old page is not served in its place: its times would lie.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._kept is None or now - self._kept[0] >= KEPT_S:
                self._kept = (now, self._make())
            return self._kept[1]


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = READ_TIMEOUT_S

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._send(HTTPStatus.OK, "ok\n")
        elif self.path != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, "there is only /metrics\n")
        else:
            try:
                self._send(HTTPStatus.OK, self.server.page())
            except PipelineError as error:
                log.warning("nothing can be exported: %s", error)
                self._send(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n")

    def _send(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Leave scrapes out of the log."""
