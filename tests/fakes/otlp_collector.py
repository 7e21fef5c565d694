"""A collector that takes OTLP over HTTP, decodes it as the protocol's own messages, and may be slow, broken or gone."""

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def from_json(body):
    """OTLP's JSON, whose ids in hex are left undecoded: they are no base64 of the same bytes."""
    return json_format.Parse(body, ExportTraceServiceRequest(), ignore_unknown_fields=True)


DECODERS = {"application/x-protobuf": ExportTraceServiceRequest.FromString, "application/json": from_json}
"""By content type; Triton 2.51 sends JSON."""


class OtlpCollector:
    """`with` serves it; `spans` is what arrived, each with the attributes of its resource."""

    def __init__(self, *, status=200, delay_s=0.0):
        self.spans, self.headers, self.paths = [], [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(delay_s)
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.paths.append(self.path)
                outer.headers.append(dict(self.headers))
                if status == 200:
                    outer.take(DECODERS[self.headers["Content-Type"].partition(";")[0]](body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, request):
        for resource in request.resource_spans:
            whose = attributes_of(resource.resource)
            self.spans += [(span, whose) for scope in resource.scope_spans for span in scope.spans]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def attributes_of(item):
    return {
        each.key: each.value.string_value or each.value.int_value or each.value.double_value for each in item.attributes
    }
