"""One client for every engine that Slipway serves: the same requests and answers, over tritonclient.

Answers come over gRPC streams, because the models are decoupled; the response that Triton marks as final ends a stream.
The client reads each model's configuration from the server once: inputs of Triton's vLLM backend have other names, and
another model renders its prompts; an ensemble gives only complete answers. A client belongs to one thread: a gRPC
client of tritonclient has one stream at a time.
"""

import queue
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tasks.adapters.generate_request import Column, GenerateRequest, columns, prompt_columns, rendered
from tasks.contracts.errors import InputError, UnavailableError
from tasks.contracts.prompt_model import ModelInputs, Prompt, model_inputs, prompt_of

UNAVAILABLE = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")
PASSING = ("failed to connect", "has no available versions", "is not ready")
"""Parts of messages about a passing state: the server does not listen yet, or is loading or unloading the model. Triton
says "is not found" of a model that it does not have."""
READY_TIMEOUT_S = 5.0
MESSAGE_CHARS = 256


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

    def __init__(
        self, host: str, http_port: int = 8000, grpc_port: int = 8001, *, own_connection: bool = False
    ) -> None:
        """Connect; with `own_connection`, over a connection that no other client of this process uses.

        Otherwise gRPC lets clients of one address share connections, so a new client may reach the server that an older
        one reached.
        """
        from tritonclient import grpc, http

        self._grpc_module = grpc
        self.address = f"{host}:{grpc_port}"
        self._http = http.InferenceServerClient(
            f"{host}:{http_port}", connection_timeout=READY_TIMEOUT_S, network_timeout=READY_TIMEOUT_S
        )
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._grpc = grpc.InferenceServerClient(self.address, channel_args=options if own_connection else None)
        self._known_inputs: dict[str, ModelInputs] = {}

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
        known = self._inputs_of(model, timeout_s)
        prompt = None if known.prompt_model is None else self._prompt(known.prompt_model, request, timeout_s)
        asked = request if prompt is None else rendered(request, prompt)
        inputs = self._tensors(columns(asked, known.names, stream=stream))
        self._grpc.start_stream(lambda result, error: arrived.put((time.monotonic(), result, error)))
        ended = False
        try:
            self._grpc.async_stream_infer(model, inputs, enable_empty_final_response=True)
            while not ended:
                chunk, ended = self._next(arrived, model, deadline, prompt)
                if chunk is not None:
                    yield chunk
        finally:
            self._grpc.stop_stream(cancel_requests=not ended)

    def _next(
        self, arrived: "queue.Queue[tuple[float, Any, Any]]", model: str, deadline: float, prompt: Prompt | None
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
        if prompt is not None:
            self._check_read(model, prompt, result.as_numpy("num_input_tokens"))
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

    def _inputs_of(self, model: str, timeout_s: float) -> ModelInputs:
        """What the model takes, and which model renders its prompts."""
        from tritonclient.utils import InferenceServerException

        if model not in self._known_inputs:
            try:
                document = self._grpc.get_model_config(model, as_json=True, client_timeout=timeout_s)
            except InferenceServerException as error:
                raise self._translated(model, error) from error
            self._known_inputs[model] = model_inputs(document["config"])
        return self._known_inputs[model]

    def _prompt(self, model: str, request: GenerateRequest, timeout_s: float) -> Prompt:
        """The prompt that the model renders of the request."""
        from tritonclient.utils import InferenceServerException

        try:
            result = self._grpc.infer(model, self._tensors(prompt_columns(request)), client_timeout=timeout_s)
        except InferenceServerException as error:
            raise self._translated(model, error) from error
        texts, counts = ("prompt", "tool_call_format"), ("prompt_tokens", "max_tokens")
        outputs = {name: result.as_numpy(name) for name in (*texts, *counts)}
        return prompt_of({name: _text(value) for name, value in outputs.items()})

    def _check_read(self, model: str, prompt: Prompt, counted: Any) -> None:
        """Refuse an answer to other tokens than the prompt was made for, such as a second token that begins a text."""
        if counted is not None and int(counted.reshape(-1)[0]) != prompt.tokens:
            raise InputError(
                f"{self.address}: {model} read a prompt as other tokens than its chat template means",
                found=f"{int(counted.reshape(-1)[0])} tokens",
                expected=f"{prompt.tokens}, as the checkpoint's tokenizer.json makes of it",
                remedy="Set engine.options.chat_template to none and send prompts in the model's own format, and "
                "report the model.",
            )

    def _tensors(self, inputs: Sequence[Column]) -> list[Any]:
        import numpy as np

        kinds = {"BYTES": np.object_, "INT32": np.int32, "BOOL": np.bool_, "FP32": np.float32, "UINT64": np.uint64}
        tensors = []
        for name, kind, value in inputs:
            values = list(value) if isinstance(value, tuple) else [value]
            tensor = self._grpc_module.InferInput(name, [len(values)], kind)
            tensor.set_data_from_numpy(np.array(values, dtype=kinds[kind]))
            tensors.append(tensor)
        return tensors


def _reason(values: Any) -> str:
    """The finish reason; empty while the answer continues, for which vLLM's backend writes None."""
    reason = _text(values) if values is not None else ""
    return "" if reason == "None" else reason


def _text(values: Any) -> str:
    first = values.reshape(-1)[0]
    return first.decode("utf-8", errors="replace") if isinstance(first, bytes) else str(first)
