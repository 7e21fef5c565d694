"""The front's admin interface, at the end of a path that is too long for a socket."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingUnixStreamServer

import pytest

from slipway.tasks.adapters.kube.front import EnvoyFront
from slipway.tasks.contracts.errors import UnavailableError

UNIX_PATH_BYTES = 107


class Admin(BaseHTTPRequestHandler):
    """Answers as Envoy 1.40 does."""

    heard: list[str]

    def do_POST(self):
        self.heard.append(self.path)
        self._reply(404 if self.path == "/drain_listeners" and "no-drain" in self.heard else 200, b"OK\n")

    def do_GET(self):
        gauges = {"http.admin": 1, "http.http": 2, "http.grpc": 3}
        stats = [{"name": f"{name}.downstream_rq_active", "value": value} for name, value in gauges.items()]
        self._reply(200, json.dumps({"stats": stats}).encode())

    def _reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


@pytest.fixture
def admin(tmp_path):
    """The socket's path, and the POSTs that were heard there."""
    folder = tmp_path / ("d" * UNIX_PATH_BYTES)
    folder.mkdir()
    handler = type("Handler", (Admin,), {"heard": []})
    opened = os.open(folder, os.O_PATH)
    server = ThreadingUnixStreamServer(f"/proc/self/fd/{opened}/admin.sock", handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield folder / "admin.sock", handler.heard
    server.shutdown()
    server.server_close()
    os.close(opened)


def test_a_front_is_told_by_posts(admin):
    path, heard = admin
    front = EnvoyFront(path)

    front.close_connections()
    front.stop_listening()
    front.quit()

    assert heard == ["/healthcheck/fail", "/drain_listeners", "/quitquitquit"]


def test_requests_of_the_admin_interface_itself_are_not_counted(admin):
    assert EnvoyFront(admin[0]).requests_in_flight() == 5


def test_a_front_that_refuses_is_unavailable(admin):
    path, heard = admin
    heard.append("no-drain")

    with pytest.raises(UnavailableError) as caught:
        EnvoyFront(path).stop_listening()

    assert "POST /drain_listeners" in caught.value.what
    assert caught.value.found.startswith("404")


def test_a_front_that_is_gone_is_unavailable(tmp_path):
    with pytest.raises(UnavailableError) as caught:
        EnvoyFront(tmp_path / "admin.sock").quit()

    assert caught.value.remedy == "Check that the container front runs."
