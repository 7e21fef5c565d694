"""The real front before anything that listens where Triton and OpenAI's API would."""

import contextlib
import json
import os
import socket
import socketserver
import subprocess

import httpx

from slipway.tasks.serving.rendered import front, front_keys
from slipway.tasks.serving.rendered.commands import PORTS, TRITON_PORTS
from slipway.tasks.serving.rendered.front import Access
from slipway.tasks.serving.rendered.front_routes import Limits
from tests.local.serving.openai_server import TEMPLATES
from tests.local.serving.triton_server import LOOPBACK
from tests.support import plain_http
from tests.support.paths import ENVIRONMENTS
from tests.support.ports import free_ports
from tests.support.service_logs import LogFiles, tell
from tests.support.waiting import PATIENCE_S, until

REQUESTS, CONNECTIONS = 3, 40
HEADERS_S, UPLOAD_S = 2, 3
"""Shorter than what is shipped, so that tests wait less."""


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class Front:
    """The shipped configuration, on ports that are free, with smaller limits.

    `keys` is a file of API keys. A `locked` front without one asks for keys, and is not told where they are.
    """

    def __init__(self, triton_port, folder, keys=None, origins=(), quotas=(), jwt=None, locked=False):
        self.port, self.grpc_port, self.probe_port, self.stats_port = free_ports(4)
        ports = {PORTS["http"]: self.port, PORTS["grpc"]: self.grpc_port, front.PROBE_PORT: self.probe_port}
        ports[front.STATS_PORT] = self.stats_port
        ports[TRITON_PORTS["http"]] = triton_port
        text = front.config(
            LOOPBACK,
            600,
            TEMPLATES,
            front.STATS_PORT,
            limits=Limits(4096, 4096, REQUESTS),
            access=Access(bool(keys or locked), quotas, origins, jwt),
        )
        document = json.loads(text, object_hook=lambda each: each | shorter(each, ports))
        command = [ENVIRONMENTS / "front/bin/envoy", "--disable-hot-restart", "--concurrency", "2"]
        self.log = folder / "front.log"
        tell(LogFiles(self.log))
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, "--log-level", "warning", "--config-yaml", json.dumps(document)],
                cwd=folder,
                stdout=file,
                stderr=file,
                env={"PATH": os.environ["PATH"]} | ({front_keys.VARIABLE: str(keys)} if keys else {}),
            )

    def __enter__(self):
        until(lambda: self.probe("/live") == 200)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)

    def probe(self, path):
        """Status of a probe; 0 while the front does not listen."""
        with contextlib.suppress(httpx.TransportError):
            return plain_http.get(f"http://{LOOPBACK}:{self.probe_port}{path}", timeout=PATIENCE_S).status_code
        return 0

    def connect(self, port=None):
        return socket.create_connection((LOOPBACK, port or self.port), timeout=PATIENCE_S)


def shorter(document, ports):
    """The fields of an object that the tests change."""
    numbers = {"port_value": ports, "max_active_downstream_connections": {front.CONNECTIONS: CONNECTIONS}}
    times = {"request_headers_timeout": f"{HEADERS_S}s", "request_timeout": f"{UPLOAD_S}s"}
    changed = {name: values.get(document[name], document[name]) for name, values in numbers.items() if name in document}
    return changed | {name: time for name, time in times.items() if name in document}
