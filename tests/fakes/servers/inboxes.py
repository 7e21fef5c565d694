"""Where notifications arrive: an SMTP server (RFC 5321, as much as smtplib speaks) and an HTTP server, both of a test."""

import email
import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler

from tests.fakes.servers.loopback_server import LoopbackServer


class Mailbox:
    """`with` serves it; `mails` is what arrived, parsed."""

    def __init__(self):
        self.mails = []
        outer = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self):
                self.say(220, "ready")
                while line := self.rfile.readline():
                    command = line[:4].upper().strip()
                    if command == b"DATA":
                        self.say(354, "go on")
                        outer.mails.append(
                            email.message_from_bytes(b"".join(self.lines()), policy=email.policy.default)
                        )
                    self.say(221 if command == b"QUIT" else 250, "ok")
                    if command == b"QUIT":
                        return

            def lines(self):
                while (line := self.rfile.readline()).rstrip(b"\r\n") != b".":
                    yield line.removeprefix(b".") if line.startswith(b"..") else line

            def say(self, code, text):
                self.wfile.write(f"{code} {text}\r\n".encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def connection(self):
        """An Airflow connection to it."""
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "slipway@example.org"}
        return json.dumps({"conn_type": "smtp", "host": "127.0.0.1", "port": self.port, "extra": extra})


class WebhookInbox(LoopbackServer):
    """`with` serves it; `posts` is what arrived: path, headers and body."""

    def __init__(self, status=204):
        self.posts = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.posts.append((self.path, dict(self.headers), body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(Handler)

    @property
    def connection(self):
        """An Airflow connection to it."""
        return json.dumps({"conn_type": "http", "host": self.endpoint, "login": "slipway", "password": "canary"})
