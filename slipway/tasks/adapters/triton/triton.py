"""One client for every engine that Slipway serves: the same requests and answers, in the messages of tritonclient.

Answers come over gRPC streams, because the models are decoupled. A stream has one request, after which the client says
that no other follows; Triton ends the stream after the answer. tritonclient's own stream hands each response from a
thread to another, as objects, which costs a load test more than twice the CPU of a chunk (docs/decisions/0041).
The client reads each model's configuration from the server once: inputs of Triton's vLLM backend have other names, and
another model renders its prompts; an ensemble gives only complete answers. Several threads may use one client.
"""

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from slipway.tasks.adapters.triton.generate_request import Column, GenerateRequest, columns, prompt_columns, rendered
from slipway.tasks.contracts.api_keys import OWN_KEY_VARIABLE
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.wire.prompt_model import ModelInputs, Prompt, model_inputs, prompt_of

UNAVAILABLE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
PASSING = ("failed to connect", "has no available versions", "is not ready")
"""Parts of messages about a passing state: the server does not listen yet, or is loading or unloading the model. Triton
says "is not found" of a model that it does not have."""
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
NO_KEY = (
    "Create a key with `slipway key create`. Steps read it from the Secret that the site's "
    f"serving.authentication.own_key_secret names, the command from {OWN_KEY_VARIABLE}."
)
READY_TIMEOUT_S = 5.0
MESSAGE_CHARS = 256
LENGTH_BYTES = 4
"""A text in binary contents is preceded by its length."""
PACKED = {"INT32": "<i", "BOOL": "<?", "FP32": "<f", "UINT64": "<Q"}
"""Formats of module struct for the other types that requests have."""


@dataclass(frozen=True)
class Answer:
    """A complete answer. `finish_reason` is stop, length or cancelled; an ensemble leaves it empty."""

    text: str
    finish_reason: str


@dataclass(frozen=True)
class Chunk:
    """A piece of an answer, and of the thoughts before it. `at_s` is the monotonic second at which it arrived."""

    text: str
    at_s: float
    finish_reason: str
    thought: str = ""

    @property
    def generated(self) -> str:
        """All that the model wrote."""
        return self.thought + self.text


class TritonClient:
    """A connection to one Triton, or to a Service in front of several."""

    def __init__(
        self,
        host: str,
        http_port: int = 8000,
        grpc_port: int = 8001,
        *,
        own_connection: bool = False,
        api_key: str = "",
    ) -> None:
        """Connect; with `own_connection`, over a connection that no other client of this process uses.

        Otherwise gRPC lets clients of one address share connections, so a new client may reach the server that an older
        one reached. `api_key` is sent with every request.
        """
        import grpc
        from tritonclient import http
        from tritonclient.grpc import service_pb2, service_pb2_grpc

        self._messages, self._refused = service_pb2, grpc.RpcError
        self.address = f"{host}:{grpc_port}"
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._http = http.InferenceServerClient(
            f"{host}:{http_port}", connection_timeout=READY_TIMEOUT_S, network_timeout=READY_TIMEOUT_S
        )
        # a proxy that the environment names, for the Hub say, must not stand between, as over HTTP
        options = [("grpc.enable_http_proxy", 0)]
        options += [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        own = [("grpc.use_local_subchannel_pool", 1)] if own_connection else []
        self._channel = grpc.insecure_channel(self.address, options=[*options, *own])
        self._grpc = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        # responses stay bytes until they are read
        self._stream_infer = self._channel.stream_stream(
            STREAM_INFER, request_serializer=service_pb2.ModelInferRequest.SerializeToString, response_deserializer=None
        )
        self._known_inputs: dict[str, ModelInputs] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_ready(self, model: str) -> bool:
        """Whether the model is ready; False also while the server does not listen."""
        try:
            return bool(self._http.is_model_ready(model, headers=dict(self._metadata)))
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

    def record(self, model: str, request: GenerateRequest, timeout_s: float) -> list[Chunk]:
        """The same pieces once all have arrived. None is read before that, so reading one delays no other's time.

        Raises:
            InputError: see `stream`.
            UnavailableError: see `stream`.
        """
        prompt, arrivals = self._start(model, request, timeout_s, stream=True)
        return [chunk for data, at_s in list(arrivals) if (chunk := self._chunk(model, data, at_s, prompt))]

    def prepare(self, model: str, timeout_s: float) -> None:
        """Connect, and read the model's configuration, so that the first request does not wait for it.

        Raises:
            InputError: the server does not have the model.
            UnavailableError: the server does not answer.
        """
        self._inputs_of(model, timeout_s)

    def close(self) -> None:
        """Close the connections; a request in flight is cancelled."""
        self._channel.close()
        self._http.close()

    def _chunks(self, model: str, request: GenerateRequest, timeout_s: float, *, stream: bool) -> Iterator[Chunk]:
        prompt, arrivals = self._start(model, request, timeout_s, stream=stream)
        for data, at_s in arrivals:
            chunk = self._chunk(model, data, at_s, prompt)
            if chunk is not None:
                yield chunk

    def _start(
        self, model: str, request: GenerateRequest, timeout_s: float, *, stream: bool
    ) -> tuple[Prompt | None, Iterator[tuple[bytes, float]]]:
        """What the prompt became, and the responses with the seconds at which they arrived."""
        deadline = time.monotonic() + timeout_s
        model_inputs = self._inputs_of(model, timeout_s)
        prompt = (
            None if model_inputs.prompt_model is None else self._prompt(model_inputs.prompt_model, request, timeout_s)
        )
        rendered_request = request if prompt is None else rendered(request, prompt)
        message = self._message(model, columns(rendered_request, model_inputs.names, stream=stream))
        return prompt, self._arrivals(model, message, deadline)

    def _arrivals(self, model: str, message: Any, deadline: float) -> Iterator[tuple[bytes, float]]:
        left_s = max(0.0, deadline - time.monotonic())
        call = self._stream_infer(iter((message,)), timeout=left_s, metadata=self._metadata)
        try:
            for data in call:
                yield data, time.monotonic()
        except self._refused as error:
            if error.code().name == "DEADLINE_EXCEEDED":
                raise UnavailableError(
                    f"{self.address}: {model} did not end its answer in time", remedy="Check whether it is overloaded."
                ) from None
            raise self._translated(model, error.details(), error.code().name) from error
        finally:
            call.cancel()  # has no effect on a stream that has ended

    def _chunk(self, model: str, data: bytes, at_s: float, prompt: Prompt | None) -> Chunk | None:
        response = self._messages.ModelStreamInferResponse.FromString(data)
        if response.error_message:
            raise self._translated(model, response.error_message)
        text = _output(response.infer_response, "text_output")
        if text is None:
            return None
        if prompt is not None:
            self._check_read(model, prompt, response.infer_response)
        reason = _output(response.infer_response, "finish_reason")
        # vLLM's backend writes None while the answer continues
        thought = _output(response.infer_response, "reasoning_content") or ""
        return Chunk(text, at_s, "" if reason in (None, "None") else reason, thought)

    def _translated(self, model: str, message: str, code: str = "") -> PipelineError:
        self._known_inputs.pop(model, None)  # the next release behind a Service may be of another kind
        message = message[:MESSAGE_CHARS]
        if code in UNAVAILABLE or any(part in message.lower() for part in PASSING):
            return UnavailableError(
                f"{self.address}: {model} is not available: {message}",
                remedy="Check that the server is up and its model is ready, then try again.",
            )
        if code == "UNAUTHENTICATED":
            return InputError(f"{self.address}: {message}", remedy=NO_KEY)
        return InputError(
            f"{self.address}: {model} rejected the request: {message}",
            remedy="Keep the request within the limits of the spec's engine part.",
        )

    @contextmanager
    def _translating(self, model: str) -> Iterator[None]:
        try:
            yield
        except self._refused as error:
            raise self._translated(model, error.details(), error.code().name) from error

    def _inputs_of(self, model: str, timeout_s: float) -> ModelInputs:
        """What the model takes, and which model renders its prompts."""
        from google.protobuf.json_format import MessageToDict

        if model not in self._known_inputs:
            with self._translating(model):
                request = self._messages.ModelConfigRequest(name=model)
                response = self._grpc.ModelConfig(request, timeout=timeout_s, metadata=self._metadata)
            self._known_inputs[model] = model_inputs(MessageToDict(response.config, preserving_proto_field_name=True))
        return self._known_inputs[model]

    def _prompt(self, model: str, request: GenerateRequest, timeout_s: float) -> Prompt:
        """The prompt that the model renders of the request."""
        from tritonclient.grpc import InferResult

        with self._translating(model):
            message = self._message(model, prompt_columns(request))
            response = self._grpc.ModelInfer(message, timeout=timeout_s, metadata=self._metadata)
        result = InferResult(response)
        texts, counts = ("prompt", "tool_call_format"), ("prompt_tokens", "max_tokens")
        outputs = {name: result.as_numpy(name) for name in (*texts, *counts)}
        return prompt_of({name: _text(value) for name, value in outputs.items()})

    def _check_read(self, model: str, prompt: Prompt, response: Any) -> None:
        """Refuse an answer to other tokens than the prompt was made for, such as a second token that begins a text."""
        from tritonclient.grpc import InferResult

        counted = InferResult(response).as_numpy("num_input_tokens")
        if counted is not None and int(counted.reshape(-1)[0]) != prompt.tokens:
            raise InputError(
                f"{self.address}: {model} read a prompt as other tokens than its chat template means",
                found=f"{int(counted.reshape(-1)[0])} tokens",
                expected=f"{prompt.tokens}, as the checkpoint's tokenizer.json makes of it",
                remedy="Set engine.options.chat_template to none and send prompts in the model's own format, and "
                "report the model.",
            )

    def _message(self, model: str, inputs: Sequence[Column]) -> Any:
        """The request as Triton takes it, with binary contents (protocol/extension_binary_data)."""
        message = self._messages.ModelInferRequest(model_name=model)
        for name, kind, value in inputs:
            values = value if isinstance(value, tuple) else (value,)
            message.inputs.add(name=name, datatype=kind, shape=[len(values)])
            message.raw_input_contents.append(b"".join(_binary(kind, each) for each in values))
        return message


def _binary(kind: str, value: Any) -> bytes:
    if kind == "BYTES":
        return len(value).to_bytes(LENGTH_BYTES, "little") + bytes(value)
    return struct.pack(PACKED[kind], value)


def _output(response: Any, name: str) -> str | None:
    """The first text of an output; None where the response does not have it."""
    for place, tensor in enumerate(response.outputs):
        if tensor.name == name:
            data = response.raw_output_contents[place]
            length = int.from_bytes(data[:LENGTH_BYTES], "little")
            return data[LENGTH_BYTES : LENGTH_BYTES + length].decode("utf-8", errors="replace") if data else None
    return None


def _text(values: Any) -> str:
    first = values.reshape(-1)[0]
    return first.decode("utf-8", errors="replace") if isinstance(first, bytes) else str(first)
