"""A stand-in for Triton that streams chunks over gRPC at a known pace: the load generator measures itself against it.

Messages are serialised once, so that the stand-in takes as little of the CPU as Python allows.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

LOOPBACK = "127.0.0.1"
MODEL = "paced"
PIECE = " token"
METHODS = "/inference.GRPCInferenceService/"
LENGTH_BYTES = 4
"""A text in raw contents is preceded by its length (Triton's protocol/extension_binary_data, BYTES)."""
GRACE_S = 5.0


class PacedServer:
    """Serves while its block runs. The first chunk of an answer follows `first_s` after its request, then one a gap."""

    def __init__(self, *, first_s: float, gap_s: float, clients: int) -> None:
        """Listen on a free port of the loopback interface.

        Args:
            first_s: seconds from a request to its first chunk.
            gap_s: seconds from a chunk to the next; 0 sends as fast as it can.
            clients: streams at once; further ones wait.
        """
        import grpc

        self.first_s, self.gap_s = first_s, gap_s
        self._messages = _Messages()
        self._pool = ThreadPoolExecutor(clients + 1)
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        handlers = {
            f"{METHODS}ModelConfig": grpc.unary_unary_rpc_method_handler(lambda *_: self.config()),
            f"{METHODS}ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
        }

        class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
            def service(self, details: Any) -> Any:
                return handlers.get(details.method)

        self._server.add_generic_rpc_handlers((Handler(),))
        self.port = int(self._server.add_insecure_port(f"{LOOPBACK}:0"))

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(GRACE_S).wait()
        self._pool.shutdown(wait=False)

    def config(self) -> bytes:
        """The model's configuration, as a client reads it once."""
        return self._messages.config

    def _stream(self, requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        for request in requests:
            chunks = self._messages.tokens(request)
            due_s = time.monotonic() + self.first_s
            for number in range(chunks):
                if (left_s := due_s + number * self.gap_s - time.monotonic()) > 0:
                    time.sleep(left_s)
                yield self._messages.last if number == chunks - 1 else self._messages.chunk


class _Messages:
    """What the stand-in sends, serialised."""

    def __init__(self) -> None:
        from tritonclient.grpc import model_config_pb2, service_pb2

        self._request = service_pb2.ModelInferRequest
        described = service_pb2.ModelConfigResponse()
        for name, kind in (("text_input", "TYPE_STRING"), ("max_tokens", "TYPE_INT32"), ("stream", "TYPE_BOOL")):
            described.config.input.add(name=name, data_type=getattr(model_config_pb2, kind), dims=[1])
        self.config: bytes = described.SerializeToString()
        self.chunk, self.last = (self._answer(service_pb2, final=final) for final in (False, True))

    @staticmethod
    def _answer(messages: Any, *, final: bool) -> bytes:
        response = messages.ModelStreamInferResponse()
        inner = response.infer_response
        inner.model_name, inner.model_version = MODEL, "1"
        for name, text in (("text_output", PIECE), ("finish_reason", "length" if final else "")):
            inner.outputs.add(name=name, datatype="BYTES", shape=[1])
            inner.raw_output_contents.append(len(text).to_bytes(LENGTH_BYTES, "little") + text.encode())
        inner.parameters["triton_final_response"].bool_param = final
        serialised: bytes = response.SerializeToString()
        return serialised

    def tokens(self, request: bytes) -> int:
        """How many tokens a request asks for."""
        read = self._request.FromString(request)
        place = [tensor.name for tensor in read.inputs].index("max_tokens")
        return int.from_bytes(read.raw_input_contents[place], "little")
