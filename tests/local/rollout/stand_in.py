"""A stand-in for tritonserver: its health paths and protocols over HTTP and gRPC, and answers that name the pod.

It ends as Triton 2.51 does: models are unloaded first, while kept connections still reach the server, so that it
refuses requests for a model it just served; then connections close without a word.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import grpc

# of the client only the protocol's modules: the package itself imports numpy, half of what a pod's start takes
(INSTALLED,) = importlib.util.find_spec("tritonclient").submodule_search_locations
package = sys.modules["tritonclient.grpc"] = ModuleType("tritonclient.grpc")
package.__path__ = [str(Path(INSTALLED, "grpc"))]

from tritonclient.grpc import service_pb2 as messages  # noqa: E402
from tritonclient.grpc import service_pb2_grpc as service  # noqa: E402

POD = os.environ.get("POD_NAME", "")
TEMPER = os.environ.get("TEMPER", "good")
PIECES, PIECE_S = 8, 0.1
UNLOADING_S = 1.0
INPUTS = ("text_input", "stream", "messages", "apply_chat_template")
UNLOADED = "Request for unknown model: 'demo' has no available versions"

HEAVY, SLOWER_S = "heavy", 2.0
"""The server of temper `lagging` takes that much longer for each request with that text."""

STEADY_S = 0.2
"""The server of temper `steady` takes that long for each request, so that one that is held up does not count for much."""

BEFORE_TIRED, TIRED_S = 4, 1.0
"""The server of temper `tiring` takes that much longer for each stream after so many."""

NONSENSE = "?!"

unloaded = threading.Event()
model = subprocess.Popen(["sleep", "60"]) if TEMPER == "bereft" else None
"""A process like those of Triton's Python models; the server of temper `bereft` loses it as it is asked."""


class Counters:
    """What Triton counts of its model's requests."""

    def __init__(self):
        self._lock = threading.Lock()
        self.succeeded, self.request_s, self.gets, self._streams = 0, 0.0, 0, 0

    @contextmanager
    def request(self, text):
        began = time.monotonic()
        if TEMPER == "lagging" and text == HEAVY:
            time.sleep(SLOWER_S)
        if TEMPER == "steady":
            time.sleep(STEADY_S)
        yield
        with self._lock:
            self.succeeded += 1
            self.request_s += time.monotonic() - began

    def is_tired(self):
        """Whether one more stream comes to a server that has had too many."""
        with self._lock:
            self._streams += 1
            return TEMPER == "tiring" and self._streams > BEFORE_TIRED

    def page(self):
        with self._lock:
            return (
                "# TYPE nv_inference_request_success counter\n"
                f'nv_inference_request_success{{model="demo",version="1"}} {self.succeeded}\n'
                f'nv_inference_request_failure{{model="demo",reason="OTHER",version="1"}} 0\n'
                f'nv_inference_request_duration_us{{model="demo",version="1"}} {self.request_s * 1e6:.0f}\n'
                f'nv_inference_queue_duration_us{{model="demo",version="1"}} 0\n'
                f"stand_in_gets {self.gets}\n"
            )


counters = Counters()


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        counters.gets += self.path.endswith("/config")
        if self.path.endswith("/config") and not unloaded.is_set():
            self._reply(200, json.dumps({"name": "demo", "input": [{"name": name} for name in INPUTS]}).encode())
            return
        ready = TEMPER != "unready" or not self.path.endswith("/ready")
        self._reply(200 if ready and not unloaded.is_set() else 400, POD.encode())

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if unloaded.is_set():
            self._reply(400, json.dumps({"error": UNLOADED}).encode())
        elif self.path.endswith("/generate_stream"):
            messages = json.loads(request.get("messages", "[]"))
            self._stream(pieces_of(request["text_input"] or messages[-1]["content"]))
        else:
            with counters.request(request["text_input"]):
                body = json.dumps({"text_output": POD}).encode()
            self._reply(200, body)

    def _stream(self, pieces):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in range(pieces):
            ended = {"finish_reason": "stop" if piece == pieces - 1 else ""}
            event = b"data: " + json.dumps({"text_output": POD, **ended}).encode() + b"\n\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            time.sleep(PIECE_S)
        self.wfile.write(b"0\r\n\r\n")

    def _reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Metrics(Http):
    def do_GET(self):
        self._reply(200, counters.page().encode())


class HttpServer(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


class Grpc(service.GRPCInferenceServiceServicer):
    def ModelInfer(self, request, context):  # noqa: N802 - the service's own name
        if unloaded.is_set():
            context.abort(grpc.StatusCode.NOT_FOUND, UNLOADED)
        with counters.request(text_of(request)):
            return answer(request)

    def ModelConfig(self, request, context):  # noqa: N802
        inputs = [{"name": name} for name in INPUTS]
        return messages.ModelConfigResponse(config={"name": request.name, "input": inputs})

    def ModelStreamInfer(self, requests, context):  # noqa: N802
        for request in requests:
            if TEMPER == "aborting":
                os.abort()
            if TEMPER == "abandoned":
                # as ReceiveMessageFromStub words it: python_backend's src/stub_launcher.cc, r26.06
                yield messages.ModelStreamInferResponse(error_message="Stub process 'demo_0_0' is not healthy.")
                continue
            if TEMPER == "bereft":
                model.kill()
                model.wait()
                context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer")
            if unloaded.is_set():
                yield messages.ModelStreamInferResponse(error_message=UNLOADED)
                continue
            if counters.is_tired():
                time.sleep(TIRED_S)
            pieces = pieces_of(text_of(request))
            for piece in range(pieces):
                response = answer(request)
                response.parameters["triton_final_response"].bool_param = piece == pieces - 1
                yield messages.ModelStreamInferResponse(infer_response=response)
                time.sleep(PIECE_S)


def text_of(request):
    """The text that a request asks with."""
    return request.raw_input_contents[0][4:].decode()


def pieces_of(text):
    """How many pieces a stream has: as many as the request says."""
    return int(text) if text.isdigit() else PIECES


def answer(request):
    text = (NONSENSE if TEMPER == "nonsense" else POD).encode()
    return messages.ModelInferResponse(
        model_name=request.model_name,
        id=request.id,
        outputs=[{"name": "text_output", "datatype": "BYTES", "shape": [1]}],
        raw_output_contents=[len(text).to_bytes(4, "little") + text],
    )


def main():
    flags = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:] if "=" in word)
    if TEMPER == "crashing":
        sys.exit("error: creating server: Internal - failed to load all models")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    if "metrics-port" in flags:
        metrics = HttpServer((flags["metrics-address"], int(flags["metrics-port"])), Metrics)
        threading.Thread(target=metrics.serve_forever, daemon=True).start()
    server = grpc.server(ThreadPoolExecutor(32))
    service.add_GRPCInferenceServiceServicer_to_server(Grpc(), server)
    if "grpc-port" in flags:
        assert server.add_insecure_port(f"{flags['grpc-address']}:{flags['grpc-port']}")
    server.start()
    http = HttpServer(
        (flags["http-address"], int(flags["http-port"])), Http
    )  # last, since it says whether all is ready
    threading.Thread(target=http.serve_forever, daemon=True).start()
    print("waiting for requests", flush=True)
    ended.wait()
    unloaded.set()
    time.sleep(UNLOADING_S)
    http.shutdown()
    server.stop(grace=None).wait()


if __name__ == "__main__":
    main()
