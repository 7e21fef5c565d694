"""Between Triton's Python backend and the scheduler: tensors in, responses out. Runs inside Triton's stub only."""

import os
import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from generation.question import Question, RefusedError, check, job
from generation.runtime import Runtime, Tokenizer
from generation.scheduler import Scheduler, StoppedError
from generation.settings import Limits

DRAIN_TIMEOUT_S = 20.0
"""Below Triton's own --exit-timeout-secs, which is 30 s unless set."""


class Service:
    """Answers the requests of one model."""

    def __init__(self, runtime: Runtime, tokenizer: Tokenizer, limits: Limits, *, slots: int) -> None:
        self._tokenizer, self._limits = tokenizer, limits
        self._scheduler = Scheduler(runtime, tokenizer, slots=slots, on_failure=_stop_server)

    def accept(self, requests: Sequence[Any]) -> None:
        """Check Triton's requests and hand them on; the answers follow through their senders."""
        for request in requests:
            self._accept(request, _Sender(request.get_response_sender()))

    def drain(self) -> None:
        """Finish what runs, within DRAIN_TIMEOUT_S."""
        self._scheduler.close(DRAIN_TIMEOUT_S)

    def _accept(self, request: Any, sender: "_Sender") -> None:
        try:
            question = _question(request)
            check(question)
            self._scheduler.submit(job(question, self._tokenizer.encode(question.text), self._limits), sender)
        except RefusedError as error:
            sender.refuse(str(error))
        except StoppedError as error:
            sender.fail(str(error))


class _Sender:
    """A Reply over Triton's response sender."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender

    def send(self, text: str, finish_reason: str) -> None:
        """One response."""
        outputs = [_tensor("text_output", text), _tensor("finish_reason", finish_reason)]
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if finish_reason else 0
        self._sender.send(pb_utils.InferenceResponse(output_tensors=outputs), flags=flags)

    def fail(self, message: str) -> None:
        """HTTP 503, gRPC UNAVAILABLE."""
        self._error(message, pb_utils.TritonError.UNAVAILABLE)

    def refuse(self, message: str) -> None:
        """HTTP 400, gRPC INVALID_ARGUMENT."""
        self._error(message, pb_utils.TritonError.INVALID_ARG)

    def is_cancelled(self) -> bool:
        """True after an HTTP disconnect or a cancelled gRPC stream."""
        return bool(self._sender.is_cancelled())

    def _error(self, message: str, code: Any) -> None:
        response = pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))
        self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _stop_server(error: Exception) -> None:
    """End the whole server: Triton would go on to call this model ready, and its restart is the pod's."""
    pb_utils.Logger.log_error(f"the engine failed, the server stops: {error}")
    os.kill(os.getppid(), signal.SIGTERM)


def _question(request: Any) -> Question:
    text, max_tokens, stream, temperature, seed = (
        _input(request, name) for name in ("text_input", "max_tokens", "stream", "temperature", "seed")
    )
    try:
        words = text.decode("utf-8") if isinstance(text, bytes) else str(text)
    except UnicodeDecodeError as error:
        raise RefusedError(f"text_input is not UTF-8 ({error.reason} at byte {error.start}). Send UTF-8.") from error
    return Question(
        text=words,
        max_tokens=None if max_tokens is None else int(max_tokens),
        stream=bool(stream),
        temperature=0.0 if temperature is None else float(temperature),
        seed=None if seed is None else int(seed),
    )


def _input(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().reshape(-1)[0]


def _tensor(name: str, text: str) -> Any:
    return pb_utils.Tensor(name, np.array([text.encode()], dtype=object))
