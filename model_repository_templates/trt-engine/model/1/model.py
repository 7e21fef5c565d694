"""Triton model that answers questions by asking the models beside it. The text of a stream is made here.

One request at a time, in the one thread of the instance's process: Triton's Python backend makes the arrays of an asked
model's answer without Python's lock (python_backend src/pb_stub.cc, ProcessBLSResponseDecoupled, July 2026), and
whatever runs meanwhile may break the process. A thread that mostly waits runs least.
Requests run side by side in as many instances.
"""

import secrets
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from generation.answer_text import AnswerText
from generation.hf_tokenizer import HuggingFaceTokenizer
from generation.scheduler import CANCELLED
from generation.service import Sender, texts
from generation.settings import engine_of, read_parameters

PREPARED = [
    "input_ids",
    "input_lengths",
    "request_output_len",
    "end_id",
    "pad_id",
    "stop_words_list",
    "runtime_top_k",
    "runtime_top_p",
    "temperature",
    "seed",
]
GENERATED = ["output_ids", "sequence_length"]

CANCEL_CHECK_S = 0.1
"""How often a client is looked after at most: asking Triton costs a trip to its process each time."""


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer; an error here keeps the model from becoming ready."""
        parameters = read_parameters(args)
        self._tokenizer = HuggingFaceTokenizer(engine_of(args), chat=False)
        self._preprocessing, self._engine = parameters["preprocessing"], parameters["tensorrt_llm"]

    def execute(self, requests: list[Any]) -> None:
        """Answer each request through its sender."""
        for request in requests:
            self._answer(request, Sender(request.get_response_sender()))

    def _answer(self, request: Any, reply: Sender) -> None:
        try:
            prepared = self._prepared(request)
            if prepared.has_error():
                reply.pass_on(prepared.error())
            else:
                self._generate(request, {tensor.name(): tensor for tensor in prepared.output_tensors()}, reply)
        except Exception as error:  # noqa: BLE001 - a decoupled model's exception is told to nobody
            reply.fail(f"no answer: {str(error)[:256]}. Ask again; see the server's log.")

    def _prepared(self, request: Any) -> Any:
        inputs = [tensor for tensor in request.inputs() if tensor.name() != "stream"]
        asked = pb_utils.InferenceRequest(
            model_name=self._preprocessing, inputs=inputs, requested_output_names=PREPARED
        )
        return asked.exec()

    def _generate(self, request: Any, prepared: dict[str, Any], reply: Sender) -> None:
        stream = pb_utils.get_input_tensor_by_name(request, "stream")
        streams = stream is not None and bool(stream.as_numpy().reshape(-1)[0])
        room = int(prepared["request_output_len"].as_numpy()[0, 0])
        answer = AnswerText(self._tokenizer, self._tokenizer.end_ids, room, texts(request, "stop_words"))
        whole = []
        generation = Generation(self._engine, list(prepared.values()), reply)
        for tokens in generation:
            whole.append(answer.add(tokens))
            if streams and whole[-1]:
                reply.send(whole[-1], "")
            if answer.is_over or generation.is_left():
                generation.stop()
        piece, reason = answer.end()
        if generation.left:
            reply.send("", CANCELLED)
        elif generation.error is not None and not answer.is_over:
            reply.pass_on(generation.error)
        else:
            reply.send(piece if streams else "".join([*whole, piece]), reason)


class Generation:
    """One request to the tensorrt_llm model; iterating gives new tokens.

    They come one by one whatever the client asked for, so that one who has gone is noticed between them.

    Attributes:
        left: whether the client has gone.
        error: what the engine said instead of tokens, or None.
    """

    def __init__(self, model: str, inputs: list[Any], reply: Sender) -> None:
        self.left, self.error = False, None
        self._number, self._reply = secrets.token_hex(16), reply
        self._model, self._inputs = model, [*inputs, _flag("streaming", value=True)]
        self._looked, self._stopped = time.monotonic(), False

    def __iter__(self) -> Iterator[list[int]]:
        """Beams are not asked for, so the first one is all there is."""
        for response in self._ask(self._inputs):
            if response.has_error():
                self.error = response.error()
            elif response.output_tensors():
                ids, lengths = (pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in GENERATED)
                yield ids[0, 0, : lengths[0, 0]].tolist()

    def is_left(self) -> bool:
        """Whether the client has gone, as far as was looked."""
        now = time.monotonic()
        if not self.left and now - self._looked >= CANCEL_CHECK_S:
            self._looked, self.left = now, self._reply.is_cancelled()
        return self.left

    def stop(self) -> None:
        """Tell the engine to end it and free its part of the cache; without effect before it began, and after its end.

        A second request of the same number with `stop` set: TensorRT-LLM 1.2, triton_backend/inflight_batcher_llm/src/
        model_instance_state.cc, handleStopRequest. The inputs that are not optional are not looked at.
        """
        if self._stopped:
            return
        self._stopped = True
        nothing = [
            pb_utils.Tensor(name, np.array([[1]], dtype=np.int32)) for name in ("input_lengths", "request_output_len")
        ]
        for _ in self._ask([*nothing, _flag("stop", value=True)]):
            pass

    def _ask(self, inputs: list[Any]) -> Iterator[Any]:
        request = pb_utils.InferenceRequest(
            request_id=self._number, model_name=self._model, inputs=inputs, requested_output_names=GENERATED
        )
        yield from request.exec(decoupled=True)


def _flag(name: str, *, value: bool) -> Any:
    return pb_utils.Tensor(name, np.array([[value]], dtype=bool))
