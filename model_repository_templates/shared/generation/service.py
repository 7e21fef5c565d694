"""Between Triton's Python backend and the scheduler: tensors in, responses out. Runs inside Triton's stub only."""

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from generation.answers.logprobs import logprobs_document
from generation.grammar.ebnf import Dialect
from generation.requests.adapters import Adapter, chosen
from generation.requests.conversation import (
    MESSAGES,
    PROMPT_IDS,
    REASONING,
    TOOLS,
    prompt_of,
    read_messages,
    read_tools,
)
from generation.requests.question import Job, Question, RefusedError, check, job
from generation.requests.sampling import BAD_WORDS, JSON_SCHEMA, LOGIT_BIAS, VALUES, read_controls
from generation.requests.template_arguments import INPUT, read_arguments
from generation.running.delivery import CANCELLED
from generation.running.scheduler import Scheduler, StoppedError
from generation.running.thoughts_first import ThoughtsFirst
from generation.runtime import Grammars, Runtime, Tokenizer, TokenLogprob, Usage
from generation.settings import Limits
from generation.workers.worker import BusyError

DRAIN_S = "SLIPWAY_DRAIN_S"
"""Environment of the serving pod: how long answers under way may take when the server ends. No parameter of
config.pbtxt, which would make another repository. Shorter than Triton's own --exit-timeout-secs."""
DRAIN_UNLESS_SET_S = "20"
"""Below Triton's own 30 s."""
READERS = 4
"""Threads in which prompts are rendered and tokenized, so that no request waits long for the text of another one."""
WAITING_REQUESTS = 1024
"""Requests that wait for such a thread; what comes beyond is asked to come again."""
WAITING_GRAMMARS = 64
"""Requests that wait for a grammar nobody has used before; what comes beyond is asked to come again."""


class Readers:
    """Threads that make prompts of requests, apart from the one in which Triton hands requests over."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        self._waiting = threading.BoundedSemaphore(READERS + WAITING_REQUESTS)

    def submit(self, sender: "Sender", work: Callable[[], None]) -> None:
        """Do the work for one request when a thread is free, or ask its client to come again."""
        if self._waiting.acquire(blocking=False):
            self._threads.submit(self._work, sender, work)
        else:
            sender.fail(f"{WAITING_REQUESTS} requests wait to be read. Ask again.")

    def close(self) -> None:
        """Finish what waits."""
        self._threads.shutdown()

    def _work(self, sender: "Sender", work: Callable[[], None]) -> None:
        try:
            _answering(sender, work)
        finally:
            self._waiting.release()


class Service:
    """Answers the requests of one model."""

    def __init__(
        self,
        runtime: Runtime,
        tokenizer: Tokenizer,
        limits: Limits,
        *,
        slots: int,
        adapters: Mapping[str, Adapter] | None = None,
        grammars: Grammars | None = None,
        dialect: Dialect = Dialect.RANGES,
    ) -> None:
        """`adapters` may change at any time.

        `grammars` judges the grammars of requests, which are of `dialect`; None leaves it to the engine.
        """
        self._dialect = dialect
        self._tokenizer, self._limits, self._adapters = tokenizer, limits, {} if adapters is None else adapters
        self._grammars, self._new_grammars = grammars, threading.BoundedSemaphore(WAITING_GRAMMARS)
        self._readers = Readers()
        self._judging = ThreadPoolExecutor(1, thread_name_prefix="grammars")
        self._drain_s = float(os.environ.get(DRAIN_S, DRAIN_UNLESS_SET_S))
        self._scheduler = Scheduler(
            ThoughtsFirst(runtime, tokenizer.thinking), tokenizer, slots=slots, on_failure=_stop_server
        )

    def accept(self, requests: Sequence[Any]) -> None:
        """Check Triton's requests and hand them on; the answers follow through their senders."""
        for request in requests:
            sender = Sender(request.get_response_sender(), self._tokenizer)
            self._readers.submit(sender, partial(self._read, request, sender))

    def drain(self) -> None:
        """Finish what runs, within the pod's SLIPWAY_DRAIN_S."""
        self._readers.close()
        self._judging.shutdown()
        self._scheduler.close(self._drain_s)

    def wake(self) -> None:
        """Have the runtime take its next step, though it has no work: it may have failed."""
        self._scheduler.wake()

    def _read(self, request: Any, sender: "Sender") -> None:
        if sender.is_cancelled():
            sender.send("", CANCELLED)
            return
        question = question_of(request, self._dialect)
        check(question, self._limits, self._tokenizer.longest_token)
        adapter = chosen(question.lora_name, self._adapters)
        question = replace(question, lora_name=adapter.name if adapter else None)
        sender.tool_call_format = self._tokenizer.tool_call_format if question.tools else None
        taken = job(question, prompt_of(question, self._tokenizer), self._limits)
        grammar = taken.sampling.controls.grammar
        if not grammar or self._grammars is None or self._grammars.knows(grammar):
            self._submit(taken, sender)
        elif self._new_grammars.acquire(blocking=False):
            self._judging.submit(_answering, sender, partial(self._judge, taken, sender))
        else:
            sender.fail(f"{WAITING_GRAMMARS} requests wait for JSON Schemas that were not used before. Ask again.")

    def _judge(self, taken: Job, sender: "Sender") -> None:
        try:
            if not sender.is_cancelled():
                self._submit(taken, sender)
            else:
                sender.send("", CANCELLED)
        finally:
            self._new_grammars.release()

    def _submit(self, taken: Job, sender: "Sender") -> None:
        grammar = taken.sampling.controls.grammar
        if grammar and self._grammars is not None:
            self._grammars.check(grammar)
        self._scheduler.submit(taken, sender)


def _answering(sender: "Sender", work: Callable[[], None]) -> None:
    """Do the work for one request. Whatever it raises, its client gets an answer and others notice nothing."""
    try:
        work()
    except RefusedError as error:
        sender.refuse(str(error))
    except (BusyError, StoppedError) as error:
        sender.fail(str(error))
    except Exception as error:  # noqa: BLE001 - a thread's exception is seen by nobody
        pb_utils.Logger.log_error(f"a request could not be read: {error!r}")
        sender.fail(f"no answer: {type(error).__name__}; see the server's log. Ask again.")


class Sender:
    """A Reply over Triton's response sender, for several threads.

    After the last response nothing is sent or asked: Triton has freed what belongs to the request, and its server would
    die of the question whether the client has gone.
    """

    def __init__(self, sender: Any, tokenizer: Tokenizer) -> None:
        self._sender, self._lock, self._is_over = sender, threading.Lock(), False
        self._tokenizer = tokenizer
        self.tool_call_format: str | None = None
        """Sent with every response, if the request has tools."""

    def send(
        self,
        text: str,
        finish_reason: str,
        usage: Usage | None = None,
        logprobs: Sequence[TokenLogprob] = (),
        thought: str = "",
        stop_word: str = "",
        prompt_logprobs: Sequence[TokenLogprob] = (),
    ) -> None:
        """One response."""
        outputs = [text_tensor("text_output", text), text_tensor("finish_reason", finish_reason)]
        if thought:
            outputs.append(text_tensor(REASONING, thought))
        if logprobs:
            outputs.append(text_tensor("logprobs", logprobs_document(logprobs, self._tokenizer)))
        if prompt_logprobs:
            outputs.append(text_tensor("prompt_logprobs", logprobs_document(prompt_logprobs, self._tokenizer)))
        if stop_word:
            outputs.append(text_tensor("stop_word", stop_word))
        if self.tool_call_format is not None:
            outputs.append(text_tensor("tool_call_format", self.tool_call_format))
        if usage is not None:
            outputs.append(pb_utils.Tensor("prompt_tokens", np.array([usage.prompt_tokens], dtype=np.int32)))
            outputs.append(pb_utils.Tensor("completion_tokens", np.array([usage.completion_tokens], dtype=np.int32)))
        self._give(pb_utils.InferenceResponse(output_tensors=outputs), final=bool(finish_reason))

    def answer(self, outputs: Sequence[Any]) -> None:
        """The only response."""
        self._give(pb_utils.InferenceResponse(output_tensors=list(outputs)), final=True)

    def fail(self, message: str) -> None:
        """HTTP 503, gRPC UNAVAILABLE."""
        self.pass_on(pb_utils.TritonError(message, pb_utils.TritonError.UNAVAILABLE))

    def refuse(self, message: str) -> None:
        """HTTP 400, gRPC INVALID_ARGUMENT."""
        self.pass_on(pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))

    def pass_on(self, error: Any) -> None:
        """An error as Triton knows it, be it of a model that was asked on behalf of this client."""
        self._give(pb_utils.InferenceResponse(error=error), final=True)

    def is_cancelled(self) -> bool:
        """True after an HTTP disconnect or a cancelled gRPC stream; False after the last response."""
        with self._lock:
            return not self._is_over and bool(self._sender.is_cancelled())

    def _give(self, response: Any, *, final: bool) -> None:
        with self._lock:
            if not self._is_over:
                self._is_over = final
                self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0)


def _stop_server(error: Exception) -> None:
    """End the whole server: Triton would go on to call this model ready, and its restart is the pod's."""
    pb_utils.Logger.log_error(f"the engine failed, the server stops: {error}")
    os.kill(os.getppid(), signal.SIGTERM)


def question_of(request: Any, dialect: Dialect = Dialect.RANGES) -> Question:
    """The inputs of a Triton request, unchecked; a JSON Schema becomes a grammar of `dialect`.

    Raises:
        RefusedError: a text is not UTF-8, or the messages, the tools, the chat template's arguments, or what controls
            the choice of tokens is wrong.
    """
    arguments, messages, tools = texts(request, INPUT), texts(request, MESSAGES), texts(request, TOOLS)
    templated = _input(request, "apply_chat_template")
    max_tokens, stream, temperature, seed = (
        _input(request, name) for name in ("max_tokens", "stream", "temperature", "seed")
    )
    return Question(
        text=texts(request, "text_input")[0],
        max_tokens=None if max_tokens is None else int(max_tokens),
        stream=bool(stream),
        temperature=0.0 if temperature is None else float(temperature),
        seed=None if seed is None else int(seed),
        stop_words=texts(request, "stop_words"),
        template_arguments=read_arguments(arguments[0]) if arguments else {},
        lora_name=lora_name_of(request),
        messages=read_messages(messages[0]) if messages else (),
        apply_chat_template=None if templated is None else bool(templated),
        controls=read_controls(
            {name: _number(request, name) for name in VALUES},
            texts(request, BAD_WORDS),
            texts(request, JSON_SCHEMA),
            dialect,
            texts(request, LOGIT_BIAS),
        ),
        tools=read_tools(tools[0]) if tools else (),
        prompt_ids=_ids(request, PROMPT_IDS),
    )


def lora_name_of(request: Any) -> str | None:
    """The adapter that a Triton request chooses, unchecked; None where it chooses none.

    Raises:
        RefusedError: the name is not UTF-8.
    """
    return next(iter(texts(request, "lora_name")), None)


def _input(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().reshape(-1)[0]


def _number(request: Any, name: str) -> float | None:
    value = _input(request, name)
    return None if value is None else value.item()


def _ids(request: Any, name: str) -> tuple[int, ...]:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return () if tensor is None else tuple(tensor.as_numpy().reshape(-1).tolist())


def texts(request: Any, name: str) -> tuple[str, ...]:
    """A text input; empty when it was not given.

    Raises:
        RefusedError: it is not UTF-8.
    """
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    values = () if tensor is None else tensor.as_numpy().reshape(-1)
    try:
        return tuple(value.decode("utf-8") if isinstance(value, bytes) else str(value) for value in values)
    except UnicodeDecodeError as error:
        raise RefusedError(f"{name} is not UTF-8 ({error.reason} at byte {error.start}). Send UTF-8.") from error


def text_tensor(name: str, text: str) -> Any:
    """A text as Triton takes it, of shape [1]."""
    return pb_utils.Tensor(name, np.array([text.encode()], dtype=object))
