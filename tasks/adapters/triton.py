"""One client for every engine Slipway serves: the same requests and answers, over tritonclient.

Answers come over gRPC streams, for the models are decoupled; the response that Triton marks as final ends a stream.
One client serves one thread: a gRPC client of tritonclient holds one stream at a time.
"""

import queue
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from tasks.contracts.errors import InputError, UnavailableError

UNAVAILABLE = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")
READY_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class GenerateRequest:
    """What to ask. Temperature 0 is greedy; a seed makes a warmer answer repeatable."""

    prompt: str
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True)
class Answer:
    """A whole answer. `finish_reason`: stop, length or cancelled."""

    text: str
    finish_reason: str


@dataclass(frozen=True)
class Chunk:
    """A piece of an answer. `at_s` is the monotonic second at which it arrived."""

    text: str
    at_s: float
    finish_reason: str


class TritonClient:
    """A connection to one Triton, or to a Service in front of several."""

    def __init__(self, host: str, http_port: int = 8000, grpc_port: int = 8001) -> None:
        from tritonclient import grpc, http

        self._grpc_module = grpc
        self.address = f"{host}:{grpc_port}"
        self._http = http.InferenceServerClient(
            f"{host}:{http_port}", connection_timeout=READY_TIMEOUT_S, network_timeout=READY_TIMEOUT_S
        )
        self._grpc = grpc.InferenceServerClient(self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_ready(self, model: str) -> bool:
        """Whether the model answers readiness; False also while nobody listens."""
        try:
            return bool(self._http.is_model_ready(model))
        except (OSError, ConnectionError):
            return False

    def generate(self, model: str, request: GenerateRequest, timeout_s: float) -> Answer:
        """The whole answer.

        Raises:
            InputError: the server refused the request.
            UnavailableError: nobody answered within `timeout_s`.
        """
        chunks = list(self._chunks(model, request, timeout_s, stream=False))
        reasons = [chunk.finish_reason for chunk in chunks if chunk.finish_reason]
        return Answer("".join(chunk.text for chunk in chunks), reasons[-1] if reasons else "")

    def stream(self, model: str, request: GenerateRequest, timeout_s: float) -> Iterator[Chunk]:
        """The answer in pieces as they arrive. Leaving the iterator early cancels the request.

        Raises:
            InputError: the server refused the request.
            UnavailableError: nobody answered, or the answer did not end within `timeout_s`.
        """
        return self._chunks(model, request, timeout_s, stream=True)

    def close(self) -> None:
        """Drop the connections; a request under way is cancelled."""
        self._grpc.close()
        self._http.close()

    def _chunks(self, model: str, request: GenerateRequest, timeout_s: float, *, stream: bool) -> Iterator[Chunk]:
        arrived: queue.Queue[tuple[float, Any, Any]] = queue.Queue()
        deadline = time.monotonic() + timeout_s
        self._grpc.start_stream(lambda result, error: arrived.put((time.monotonic(), result, error)))
        ended = False
        try:
            self._grpc.async_stream_infer(model, self._inputs(request, stream=stream), enable_empty_final_response=True)
            while not ended:
                chunk, ended = self._next(arrived, model, deadline)
                if chunk is not None:
                    yield chunk
        finally:
            self._grpc.stop_stream(cancel_requests=not ended)

    def _next(
        self, arrived: "queue.Queue[tuple[float, Any, Any]]", model: str, deadline: float
    ) -> tuple[Chunk | None, bool]:
        try:
            at_s, result, error = arrived.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise UnavailableError(
                f"{self.address}: {model} did not end its answer in time; is it overloaded?"
            ) from None
        if error is not None:
            raise self._translated(model, error)
        final = result.get_response().parameters["triton_final_response"].bool_param
        text = result.as_numpy("text_output")
        if text is None or not text.size:
            return None, final
        reason = result.as_numpy("finish_reason")
        return Chunk(_text(text), at_s, _text(reason) if reason is not None else ""), final

    def _translated(self, model: str, error: Any) -> Exception:
        text = f"{self.address}: {model}: {str(error.message())[:256]}"
        if str(error.status()) in UNAVAILABLE or "failed to connect" in text.lower():
            return UnavailableError(text)
        return InputError(text)

    def _inputs(self, request: GenerateRequest, *, stream: bool) -> list[Any]:
        import numpy as np

        columns: list[tuple[str, str, Any]] = [
            ("text_input", "BYTES", np.array([request.prompt.encode()], dtype=object)),
            ("max_tokens", "INT32", np.array([request.max_tokens], dtype=np.int32)),
            ("stream", "BOOL", np.array([stream], dtype=bool)),
            ("temperature", "FP32", np.array([request.temperature], dtype=np.float32)),
        ]
        if request.seed is not None:
            columns.append(("seed", "UINT64", np.array([request.seed], dtype=np.uint64)))
        inputs = []
        for name, kind, value in columns:
            tensor = self._grpc_module.InferInput(name, list(value.shape), kind)
            tensor.set_data_from_numpy(value)
            inputs.append(tensor)
        return inputs


def _text(values: Any) -> str:
    first = values.reshape(-1)[0]
    return first.decode("utf-8", errors="replace") if isinstance(first, bytes) else str(first)
