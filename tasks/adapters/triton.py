"""One client for every engine that Slipway serves: the same requests and answers, over tritonclient.

Answers come over gRPC streams, because the models are decoupled; the response that Triton marks as final ends a stream.
The client reads each model's inputs from the server once: those of Triton's vLLM backend have other names, and an
ensemble gives only complete answers. A client belongs to one thread: a gRPC client of tritonclient has one stream at a
time.
"""

import json
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tasks.contracts.errors import InputError, UnavailableError

UNAVAILABLE = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")
PASSING = ("failed to connect", "has no available versions", "is not ready")
"""Parts of messages about a passing state: the server does not listen yet, or is loading or unloading the model. Triton
says "is not found" of a model that it does not have."""
READY_TIMEOUT_S = 5.0
MESSAGE_CHARS = 256
TEMPLATE_ARGUMENTS, MESSAGES = "chat_template_kwargs", "messages"


@dataclass(frozen=True)
class GenerateRequest:
    """A prompt and how to answer it. Temperature 0 is greedy; a seed makes an answer at another one repeatable.

    `lora` names an adapter that answers instead of the model, if the release has adapters; the server rejects a name
    that it does not know. `chat_template_kwargs` override the chat template's arguments of the release; models of
    Slipway's own take them, and the server rejects them where it applies no template. `history` are messages before the
    prompt, with role and content; the same models take them.
    """

    prompt: str
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    lora: str | None = None
    chat_template_kwargs: Mapping[str, object] = field(default_factory=dict)
    history: tuple[Mapping[str, str], ...] = ()

    @property
    def messages(self) -> str:
        """The whole conversation as JSON; empty without a history."""
        turns = [*self.history, {"role": "user", "content": self.prompt}]
        return json.dumps(turns, ensure_ascii=False) if self.history else ""


@dataclass(frozen=True)
class Answer:
    """A complete answer. `finish_reason` is stop, length or cancelled; an ensemble leaves it empty."""

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
        self._known_inputs: dict[str, frozenset[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_ready(self, model: str) -> bool:
        """Whether the model is ready; False also while the server does not listen."""
        try:
            return bool(self._http.is_model_ready(model))
        except (OSError, ConnectionError):
            return False

    def generate(self, model: str, request: GenerateRequest, timeout_s: float) -> Answer:
        """Generate a complete answer.

        Raises:
            InputError: the server rejected the request, or `lora` is given and the model has no adapters.
            UnavailableError: there was no answer within `timeout_s`.
        """
        chunks = list(self._chunks(model, request, timeout_s, stream=False))
        reasons = [chunk.finish_reason for chunk in chunks if chunk.finish_reason]
        return Answer("".join(chunk.text for chunk in chunks), reasons[-1] if reasons else "")

    def stream(self, model: str, request: GenerateRequest, timeout_s: float) -> Iterator[Chunk]:
        """Yield pieces of the answer as they arrive; a model that cannot stream gives one. Leaving early cancels it.

        Raises:
            InputError: the server rejected the request, or `lora` is given and the model has no adapters.
            UnavailableError: there was no answer, or it did not end within `timeout_s`.
        """
        return self._chunks(model, request, timeout_s, stream=True)

    def close(self) -> None:
        """Close the connections; a request in flight is cancelled."""
        self._grpc.close()
        self._http.close()

    def _chunks(self, model: str, request: GenerateRequest, timeout_s: float, *, stream: bool) -> Iterator[Chunk]:
        arrived: queue.Queue[tuple[float, Any, Any]] = queue.Queue()
        deadline = time.monotonic() + timeout_s
        inputs = self._tensors(columns(request, self._input_names(model, timeout_s), stream=stream))
        self._grpc.start_stream(lambda result, error: arrived.put((time.monotonic(), result, error)))
        ended = False
        try:
            self._grpc.async_stream_infer(model, inputs, enable_empty_final_response=True)
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
                f"{self.address}: {model} did not end its answer in time", remedy="Check whether it is overloaded."
            ) from None
        if error is not None:
            raise self._translated(model, error)
        final = result.get_response().parameters["triton_final_response"].bool_param
        text = result.as_numpy("text_output")
        if text is None or not text.size:
            return None, final
        reason = result.as_numpy("finish_reason")
        return Chunk(_text(text), at_s, _reason(reason)), final

    def _translated(self, model: str, error: Any) -> Exception:
        self._known_inputs.pop(model, None)  # the next release behind a Service may be of another kind
        message = str(error.message())[:MESSAGE_CHARS]
        if str(error.status()) in UNAVAILABLE or any(part in message.lower() for part in PASSING):
            return UnavailableError(
                f"{self.address}: {model} is not available: {message}",
                remedy="Check that the server is up and its model is ready, then try again.",
            )
        return InputError(
            f"{self.address}: {model} rejected the request: {message}",
            remedy="Keep the request within the limits of the spec's engine part.",
        )

    def _input_names(self, model: str, timeout_s: float) -> frozenset[str]:
        """Names of the inputs of a model."""
        from tritonclient.utils import InferenceServerException

        if model not in self._known_inputs:
            try:
                metadata = self._grpc.get_model_metadata(model, client_timeout=timeout_s)
            except InferenceServerException as error:
                raise self._translated(model, error) from error
            self._known_inputs[model] = frozenset(tensor.name for tensor in metadata.inputs)
        return self._known_inputs[model]

    def _tensors(self, inputs: Sequence["Column"]) -> list[Any]:
        import numpy as np

        kinds = {"BYTES": np.object_, "INT32": np.int32, "BOOL": np.bool_, "FP32": np.float32, "UINT64": np.uint64}
        tensors = []
        for name, kind, value in inputs:
            tensor = self._grpc_module.InferInput(name, [1], kind)
            tensor.set_data_from_numpy(np.array([value], dtype=kinds[kind]))
            tensors.append(tensor)
        return tensors


Column = tuple[str, str, bytes | int | float | bool]


def columns(request: GenerateRequest, inputs: frozenset[str], *, stream: bool) -> list[Column]:
    """Name, type and value of each input of Slipway's own models, or of Triton's vLLM backend (8de0c14).

    Args:
        request: the request.
        inputs: names of the model's inputs.
        stream: whether the answer comes in pieces.

    Raises:
        InputError: the request names an adapter, or has arguments of a chat template or a history, and the model has no
            input for them.
    """
    if request.chat_template_kwargs and TEMPLATE_ARGUMENTS not in inputs:
        raise InputError(
            "arguments of the chat template were sent to a model that takes none",
            found=", ".join(request.chat_template_kwargs),
            expected=f"a model with the input {TEMPLATE_ARGUMENTS}, which those of Triton's vLLM backend lack",
            remedy="Leave them out, or release the model again.",
        )
    if request.history and MESSAGES not in inputs:
        raise InputError(
            "a conversation was sent to a model that takes prompts only",
            found=f"{len(request.history)} messages before the prompt",
            expected=f"a model with the input {MESSAGES}, which those of Triton's vLLM backend lack",
            remedy="Leave the history out, or release the model again.",
        )
    if "sampling_parameters" in inputs:
        return _vllm_columns(request, inputs, stream=stream)
    if request.lora is not None and "lora_name" not in inputs:
        raise InputError(
            f"adapter {request.lora} was requested from a model without LoRA adapters",
            expected="a model that was released with adapters (engine.lora)",
            remedy="Leave the adapter out, or ask a release that has it.",
        )
    values: list[Column] = [
        ("text_input", "BYTES", b"" if request.history else request.prompt.encode()),
        ("max_tokens", "INT32", request.max_tokens),
        ("stream", "BOOL", stream),
        ("temperature", "FP32", request.temperature),
    ]
    # a greedy answer is the same with every seed, which a model that cannot obey one need not know
    if request.seed is not None and (request.temperature > 0 or "seed" in inputs):
        values.append(("seed", "UINT64", request.seed))
    if request.history:
        values.append((MESSAGES, "BYTES", request.messages.encode()))
    if request.chat_template_kwargs:
        values.append((TEMPLATE_ARGUMENTS, "BYTES", json.dumps(dict(request.chat_template_kwargs)).encode()))
    if request.lora is not None:
        values.append(("lora_name", "BYTES", request.lora.encode()))
    return [column for column in values if column[0] != "stream" or "stream" in inputs]


def _vllm_columns(request: GenerateRequest, inputs: frozenset[str], *, stream: bool) -> list[Column]:
    sampling: dict[str, Any] = {"max_tokens": request.max_tokens, "temperature": request.temperature}
    if request.seed is not None:
        sampling["seed"] = request.seed
    if request.lora is not None:
        sampling["lora_name"] = request.lora
    values: list[Column] = [
        ("text_input", "BYTES", request.prompt.encode()),
        ("stream", "BOOL", stream),
        ("sampling_parameters", "BYTES", json.dumps(sampling).encode()),
        ("exclude_input_in_output", "BOOL", True),
        ("return_finish_reason", "BOOL", True),
    ]
    return [column for column in values if column[0] in inputs]


def _reason(values: Any) -> str:
    """The finish reason; empty while the answer continues, for which vLLM's backend writes None."""
    reason = _text(values) if values is not None else ""
    return "" if reason == "None" else reason


def _text(values: Any) -> str:
    first = values.reshape(-1)[0]
    return first.decode("utf-8", errors="replace") if isinstance(first, bytes) else str(first)
