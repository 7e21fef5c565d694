"""Triton's HTTP side as far as a question goes: a model's configuration, and its answer as server-sent events.

With `prompt`, a second model renders prompts: its outputs, or a status and an error.
"""

import contextlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

from tests.support.waiting import PATIENCE_S

INPUTS = ("text_input", "max_tokens", "stream", "temperature", "seed")


@dataclass
class TritonHttpServer:
    """The server. `answers` are the events of the answer; `refusal` is a status and an error in their place."""

    model: str = "demo"
    inputs: tuple[str, ...] = INPUTS
    answers: list[dict] = field(default_factory=list)
    refusal: tuple[int, str] | None = None
    raw: bytes | None = None
    """What is answered to a question in place of HTTP that Triton would send."""
    asked: list[dict] = field(default_factory=list)
    prompt: dict | tuple[int, str] | None = None
    rendered: list[dict] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    """An answer's later events wait for it; it is set from the start."""

    def __enter__(self):
        self.go_on.set()
        handler = type("Handler", (_Handler,), {"triton": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self):
        return self._server.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    triton: TritonHttpServer

    def do_GET(self):
        triton = self.triton
        if self.path != f"/v2/models/{triton.model}/config":
            name = self.path.split("/")[3]
            self._send(404, {"error": f"Request for unknown model: '{name}' is not found"})
            return
        renders = {"prompt_model": {"string_value": f"{triton.model}_prompt"}} if triton.prompt else {}
        inputs = [{"name": name} for name in triton.inputs]
        self._send(200, {"name": triton.model, "input": inputs, "parameters": renders})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == f"/v2/models/{self.triton.model}_prompt/generate":
            self.triton.rendered.append(asked)
            found = self.triton.prompt
            self._send(200, found) if isinstance(found, dict) else self._send(found[0], {"error": found[1]})
            return
        assert self.path == f"/v2/models/{self.triton.model}/generate_stream"
        self.triton.asked.append(asked)
        if self.triton.raw is not None:
            self.wfile.write(self.triton.raw)
            self.close_connection = True
        elif self.triton.refusal:
            self._send(self.triton.refusal[0], {"error": self.triton.refusal[1]}, prefix="data: ")
        else:
            self._stream()

    def _stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, answer in enumerate(self.triton.answers):
            if number:
                self.triton.go_on.wait(PATIENCE_S)
            event = f"data: {json.dumps(answer)}\n\n".encode()
            # a chunk need not end where an event does
            for start, end in pairwise((0, len(event) // 2, len(event))):
                self._chunk(event[start:end])
        self._chunk(b"")

    def _chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _send(self, status, document, prefix=""):
        body = f"{prefix}{json.dumps(document)}\n\n".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self):
        with contextlib.suppress(OSError):  # clients leave
            super().handle()

    def log_message(self, *_):
        pass
