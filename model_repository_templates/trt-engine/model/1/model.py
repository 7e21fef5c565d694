"""Triton model that answers questions by asking the models beside it. The text of a stream is made here."""

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from engine_adapters import identity, is_missing, with_weights
from generation.answers.answer_text import AnswerText
from generation.model_files.channels import Thinking
from generation.model_files.hf_tokenizer import HuggingFaceTokenizer
from generation.model_files.tool_calls import NO_TOOLS
from generation.requests.adapters import Adapter, chosen, read_adapters
from generation.requests.question import RefusedError
from generation.requests.sampling import JSON_SCHEMA
from generation.running.delivery import CANCELLED
from generation.runtime import TokenLogprob, Usage
from generation.service import Sender, lora_name_of, texts
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
    "min_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "bad_words_list",
    "return_log_probs",
    "tool_call_format",
    "thought_marks",
]
GUIDES = ["guided_decoding_guide_type", "guided_decoding_guide"]
"""Prepared where the request has a JSON Schema."""
LOG_PROBS = "output_log_probs"
GENERATED = ["output_ids", "sequence_length"]
NOT_PREPARED = ("stream", "lora_name")
"""Inputs of this model that the preprocessing model does not have."""

WAITING_PER_SLOT = 4
"""Requests handed to TensorRT-LLM beyond those that fit its batch: they show in its own count of waiting ones."""

MAX_WAITING = 256
"""The most of them. Every request has a thread: 2,304 threads took 1 s to start and 37 MiB, 10,240 took 8 s and 165 MiB
(CPython 3.11 on two cores), and clusters limit the threads of a pod. A batch of 256 makes 512 threads, below 1,024, the
lowest limit that GKE lets a kubelet have. Further requests wait in the pool's queue."""

CANCEL_CHECK_S = 0.1
"""How often clients are looked after, all of them: asking Triton costs a trip to its process each time."""


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer; an error here keeps the model from becoming ready."""
        parameters = read_parameters(args)
        self._tokenizer = HuggingFaceTokenizer(engine_of(args), chat=False)
        self._adapters = read_adapters(parameters, engine_of(args))
        self._preprocessing, self._engine = parameters["preprocessing"], Engine(parameters["tensorrt_llm"])
        slots = int(parameters["max_batch_size"])
        threads = slots + min(WAITING_PER_SLOT * slots, MAX_WAITING)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="answer")

    def execute(self, requests: list[Any]) -> None:
        """Start answering; the answers follow through the requests' senders."""
        for request in requests:
            self._threads.submit(self._answer, request, Sender(request.get_response_sender(), self._tokenizer))

    def finalize(self) -> None:
        """Wait for the requests that run."""
        self._threads.shutdown(wait=True)
        self._engine.close()

    def _answer(self, request: Any, reply: Sender) -> None:
        try:
            adapter = chosen(lora_name_of(request), self._adapters)
            prepared = self._prepared(request)
            if prepared.has_error():
                reply.pass_on(prepared.error())
            else:
                self._generate(request, {tensor.name(): tensor for tensor in prepared.output_tensors()}, adapter, reply)
        except RefusedError as error:
            reply.refuse(str(error))
        except Exception as error:  # noqa: BLE001 - a thread's exception is seen by nobody, and a client must not be left waiting
            reply.fail(f"no answer: {str(error)[:256]}. See the server's log. Ask again.")

    def _prepared(self, request: Any) -> Any:
        inputs = [tensor for tensor in request.inputs() if tensor.name() not in NOT_PREPARED]
        guides = GUIDES if any(tensor.name() == JSON_SCHEMA for tensor in inputs) else []
        asked = pb_utils.InferenceRequest(
            model_name=self._preprocessing, inputs=inputs, requested_output_names=[*PREPARED, *guides]
        )
        return asked.exec()

    def _generate(self, request: Any, prepared: dict[str, Any], adapter: Adapter | None, reply: Sender) -> None:
        stream = pb_utils.get_input_tensor_by_name(request, "stream")
        streams = stream is not None and bool(stream.as_numpy().reshape(-1)[0])
        call_format = prepared.pop("tool_call_format").as_numpy()[0].decode()
        reply.tool_call_format = None if call_format == NO_TOOLS else call_format
        begin, end = prepared.pop("thought_marks").as_numpy().tolist()
        thinking = Thinking.by(begin, end, self._tokenizer.decode).answer(prepared["input_ids"].as_numpy()[0].tolist())
        room, least = (int(prepared[name].as_numpy()[0, 0]) for name in ("request_output_len", "min_tokens"))
        words, ends = texts(request, "stop_words"), self._tokenizer.end_ids
        answer = AnswerText(self._tokenizer, ends, room, words, least, thinking.take)
        whole = []
        logprobs: list[TokenLogprob] = []
        inputs = list(prepared.values())
        with self._engine.generation(inputs, reply, stream=streams, adapter=adapter) as generation:
            for tokens, reported in generation:
                whole.append(answer.add(tokens))
                told = zip(tokens, reported, answer.shown, strict=False)
                logprobs += [TokenLogprob(token, logprob) for token, logprob, is_shown in told if is_shown]
                thought = answer.new_thought() if streams else ""
                if streams and (whole[-1] or thought):
                    reply.send(whole[-1], "", None, logprobs, thought)
                    logprobs = []
                if answer.is_over:
                    generation.stop()
        piece, reason = answer.end()
        if generation.left:
            reply.send("", CANCELLED)
        elif generation.error is not None and not answer.is_over:
            reply.pass_on(generation.error)
        else:
            usage = Usage(int(prepared["input_lengths"].as_numpy()[0, 0]), answer.tokens)
            text = piece if streams else "".join([*whole, piece])
            reply.send(text, reason, usage, logprobs, answer.new_thought(), answer.stop_word)


class Engine:
    """The tensorrt_llm model, and a thread that looks after the clients it generates for."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._running: dict[str, Generation] = {}
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._watcher.start()

    @contextmanager
    def generation(
        self, inputs: list[Any], reply: Sender, *, stream: bool, adapter: Adapter | None = None
    ) -> "Iterator[Generation]":
        """Tokens for prepared inputs, asked for when they are iterated; `adapter` makes them instead of the model."""
        generation = Generation(self._model, [*inputs, _flag("streaming", value=stream)], reply, adapter)
        began_as = generation.number
        self._running[began_as] = generation
        try:
            yield generation
        finally:
            del self._running[began_as]

    def close(self) -> None:
        """End the watching."""
        self._closed.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._closed.wait(CANCEL_CHECK_S):
            for generation in list(self._running.values()):
                try:
                    self._look_after(generation)
                except Exception as error:  # noqa: BLE001 - the others are looked after, and this one at the next look
                    pb_utils.Logger.log_error(f"a request whose client may have left could not be stopped: {error!r}")

    @staticmethod
    def _look_after(generation: "Generation") -> None:
        generation.left = generation.left or generation.reply.is_cancelled()
        if generation.left:
            generation.stop()


class Generation:
    """One request to the tensorrt_llm model; iterating gives new tokens, and their log-probabilities if it wants them.

    Attributes:
        number: names the request to the engine; another one where the request is sent again.
        reply: the way back to the client.
        left: whether the client has gone.
        error: what the engine said instead of tokens, or None.
    """

    def __init__(self, model: str, inputs: list[Any], reply: Sender, adapter: Adapter | None) -> None:
        self.number, self.reply, self._adapter = secrets.token_hex(16), reply, adapter
        self.left = False
        self.error: Any = None
        self._model, self._inputs = model, inputs
        self._reports = any(each.name() == "return_log_probs" and each.as_numpy().any() for each in inputs)

    def __iter__(self) -> Iterator[tuple[list[int], list[float]]]:
        """Tokens of the model, or of its adapter, whose weights follow if the engine's cache does not have them."""
        if self._adapter is None:
            yield from self._tokens(self._inputs)
            return
        yield from self._tokens([*self._inputs, *identity(self._adapter)])
        if is_missing(self.error) and not self.left:
            self.number, self.error = secrets.token_hex(16), None
            yield from self._tokens([*self._inputs, *with_weights(self._adapter)])

    def _tokens(self, inputs: list[Any]) -> Iterator[tuple[list[int], list[float]]]:
        """Beams are not asked for, so the first one is all there is."""
        for response in self._ask(inputs):
            if response.has_error():
                self.error = response.error()
            elif response.output_tensors():
                ids, lengths = (pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in GENERATED)
                tokens = ids[0, 0, : lengths[0, 0]].tolist()
                yield tokens, self._log_probs(response, len(tokens))

    def _log_probs(self, response: Any, count: int) -> list[float]:
        """Those of the newest tokens, of shape [1, beams, n]: a response may have those of earlier ones as well."""
        if not self._reports or not count:
            return []
        found = pb_utils.get_output_tensor_by_name(response, LOG_PROBS).as_numpy()
        return [float(each) for each in found[0, 0, -count:]]

    def stop(self) -> None:
        """Tell the engine to end it and free its part of the cache; without effect before it began, and after its end.

        A second request of the same number with `stop` set: TensorRT-LLM 1.2, triton_backend/inflight_batcher_llm/src/
        model_instance_state.cc, handleStopRequest. The inputs that are not optional are not looked at.
        """
        nothing = [
            pb_utils.Tensor(name, np.array([[1]], dtype=np.int32)) for name in ("input_lengths", "request_output_len")
        ]
        for _ in self._ask([*nothing, _flag("stop", value=True)]):
            pass

    def _ask(self, inputs: list[Any]) -> Iterator[Any]:
        outputs = [*GENERATED, LOG_PROBS] if self._reports else GENERATED
        request = pb_utils.InferenceRequest(
            request_id=self.number, model_name=self._model, inputs=inputs, requested_output_names=outputs
        )
        responses = request.exec(decoupled=True)
        yield from responses
        self.reply.is_cancelled()  # lets Triton forget `responses` while they are held: docs/decisions/0007


def _flag(name: str, *, value: bool) -> Any:
    return pb_utils.Tensor(name, np.array([[value]], dtype=bool))
