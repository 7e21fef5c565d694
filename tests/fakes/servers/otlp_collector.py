"""A collector that takes OTLP over HTTP, decodes it as the protocol's own messages, and may be slow, broken or gone."""

import contextlib
import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def from_json(body):
    """OTLP's JSON, whose ids in hex are left undecoded: they are no base64 of the same bytes."""
    return json_format.Parse(body, ExportTraceServiceRequest(), ignore_unknown_fields=True)


DECODERS = {"application/x-protobuf": ExportTraceServiceRequest.FromString, "application/json": from_json}
"""By content type; Triton 2.51 sends JSON."""


class OtlpCollector:
    """`with` serves it; `spans` is what arrived, each with the attributes of its resource.

    With the trouble "silent" it answers nothing until `with` ends; with "drips" it sends a header that has no end until then.
    """

    def __init__(self, *, status=200, trouble=""):
        self.spans, self.headers, self.paths, self.answered = [], [], [], 0
        self._trouble, self._ended = trouble, threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.hold(self.wfile)
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.paths.append(self.path)
                outer.headers.append(dict(self.headers))
                if status == 200:
                    outer.take(DECODERS[self.headers["Content-Type"].partition(";")[0]](body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                outer.answered += 1

            def handle(self):
                with contextlib.suppress(OSError):  # the client has left
                    super().handle()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def hold(self, answer):
        """Keep a client in trouble waiting."""
        if self._trouble == "drips":
            answer.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
        while self._trouble and not self._ended.wait(0.1):
            if self._trouble == "drips":
                answer.write(b"x")

    def take(self, request):
        for resource in request.resource_spans:
            whose = attributes_of(resource.resource)
            self.spans += [(span, whose) for scope in resource.scope_spans for span in scope.spans]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()


def attributes_of(item):
    return {
        each.key: each.value.string_value or each.value.int_value or each.value.double_value for each in item.attributes
    }
