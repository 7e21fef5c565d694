"""A server before an object store that passes requests on, or spoils those that a test chooses."""

import contextlib
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import httpx

from tests.fakes.servers.loopback_server import LoopbackServer
from tests.support import plain_http

DRIP_PIECES, DRIP_S = 8, 0.1
KEPT_HEADERS = ("Content-Type", "ETag", "Last-Modified", "Accept-Ranges")
ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>spoiled by the test</Message></Error>"


@dataclass
class Fault:
    """What happens to requests of these methods whose path holds `key`."""

    kind: str
    """status, drip, lose or cut."""
    methods: tuple[str, ...] = ("GET", "PUT", "HEAD", "POST", "DELETE")
    key: str = ""
    status: int = 503
    code: str = "SlowDown"
    met: list[str] = field(default_factory=list)
    """Requests that it has spoiled, in order."""

    def meets(self, method: str, path: str) -> bool:
        meets = method in self.methods and self.key in path
        if meets:
            self.met.append(f"{method} {path}")
        return meets


class FaultyS3(LoopbackServer):
    """Stands before `endpoint` within the block. `fault` is what it does; None: nothing but pass requests on."""

    def __init__(self, endpoint: str):
        self.fault: Fault | None = None
        self.store = plain_http.client(base_url=endpoint, limits=httpx.Limits(max_keepalive_connections=0))
        super().__init__(type("Handler", (_Handler,), {"front": self}))

    @contextlib.contextmanager
    def spoiling(self, kind: str, **options):
        """One fault, within the block."""
        self.fault = Fault(kind, **options)
        try:
            yield self.fault
        finally:
            self.fault = None

    @contextlib.contextmanager
    def refusing(self):
        """Nothing listens within the block."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # boto3 waits a second for a server of 1.0 to continue
    front: FaultyS3

    def _pass_on(self):
        fault = self.front.fault
        kind = fault.kind if fault and fault.meets(self.command, self.path) else "none"
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if kind == "status":
            self._answer(fault.status, {}, ERROR.format(code=fault.code).encode())
        else:
            answer = self.front.store.request(self.command, self.path, content=content, headers=dict(self.headers))
            headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
            if kind == "lose":
                self.close_connection = True
            else:
                self._answer(answer.status_code, headers, answer.content, kind, answer.headers.get("Content-Length"))

    def _answer(self, status, headers, body, kind="none", length=None):
        self.send_response(status)
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name, value)
        bodiless = self.command == "HEAD" or status in (204, 304)
        if status not in (204, 304):
            self.send_header("Content-Length", length if bodiless and length else str(len(body)))
        self.end_headers()
        if bodiless:
            return
        if kind == "cut":
            self.wfile.write(body[: len(body) // 2])
        elif kind == "drip":
            size = max(1, -(-len(body) // DRIP_PIECES))
            for first in range(0, len(body), size):
                self.wfile.write(body[first : first + size])
                time.sleep(DRIP_S)
        else:
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - the names that http.server calls

    def log_message(self, *_):
        pass
