"""Continuous batching around any Runtime: who runs, who waits, what is given out, and how it all ends.

One thread owns the runtime. Requests of any time join the running batch as soon as a slot is free; a client that has
gone frees its slot; a failure of the runtime fails everyone at once instead of leaving them waiting.
"""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from generation.answer_text import STOP, StopWords
from generation.question import Job
from generation.runtime import Progress, Runtime, Shown, Tokenizer, TokenLogprob, Usage
from generation.text_stream import TextStream

CANCELLED = "cancelled"
CANCEL_CHECK_S = 0.05
"""How often one client is looked after: asking Triton costs a trip to its process."""

GIVE_UP_S = 2.0
"""How long the thread gets to tell those whom a drain left over."""


class Reply(Protocol):
    """The way back to one client. After a finish reason or a failure nothing more is sent."""

    def send(
        self, text: str, finish_reason: str, usage: Usage | None = None, logprobs: Sequence[TokenLogprob] = ()
    ) -> None:
        """A piece of the answer; with a finish reason, the last one, and with it the tokens of the whole request.

        `logprobs` are those of every token since the last piece.
        """

    def fail(self, message: str) -> None:
        """No answer, or no more of it."""

    def is_cancelled(self) -> bool:
        """Whether the client has gone."""


class StoppedError(Exception):
    """The scheduler takes no requests any more."""


@dataclass
class _Request:
    job: Job
    reply: Reply
    checked_s: float
    shown: Shown
    text: TextStream = field(default_factory=TextStream)
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    tokens: int = 0
    stop_words: StopWords = field(init=False)

    def __post_init__(self) -> None:
        self.stop_words = StopWords(self.job.stop_words)

    @property
    def usage(self) -> Usage:
        return Usage(len(self.job.prompt), self.tokens)

    @property
    def is_read(self) -> bool:
        """Whether its text matters before its end."""
        return self.job.stream or bool(self.job.stop_words)

    def add(self, step: Progress) -> None:
        if step.logprobs:  # what is not shown is left out here as well
            for entry in step.logprobs:
                if shown := self.shown([entry.token]):
                    self.text.add(shown)
                    self.logprobs.append(entry)
        else:
            self.text.add(self.shown(step.tokens))
        self.tokens += len(step.tokens)

    def piece(self, text: str, *, final: bool) -> str:
        """What to send now, when `text` is what the window decodes to: nothing before the end unless it streams."""
        certain = self.text.advance(text, final=final)
        if self.tokens < self.job.sampling.controls.min_tokens and not final:  # no stop word counts yet
            self.pieces.append(certain)
        else:
            self.pieces.append(self.stop_words.advance(certain, final=final))
        if not (self.job.stream or final or self.stop_words.found):
            return ""
        pieces, self.pieces = self.pieces, []
        return "".join(pieces)


class Scheduler:
    """Runs jobs in at most `slots` slots. Every job that was submitted gets an end: an answer or a failure."""

    def __init__(
        self, runtime: Runtime, tokenizer: Tokenizer, *, slots: int, on_failure: Callable[[Exception], None]
    ) -> None:
        """`on_failure` is called once, from the scheduler's thread, after the runtime raised and everyone was told."""
        self._runtime, self._tokenizer, self._slots, self._on_failure = runtime, tokenizer, slots, on_failure
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._arrived: deque[_Request] = deque()
        self._waiting: deque[_Request] = deque()
        self._running: dict[int, _Request] = {}
        self._closing = self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def submit(self, job: Job, reply: Reply) -> None:
        """Take a job; its answer comes through `reply`, from the scheduler's thread.

        Raises:
            StoppedError: it was closed, or its runtime failed.
        """
        shown = self._tokenizer.shown(job.prompt)
        with self._changed:
            if self._closing:
                raise StoppedError(
                    "the model is stopping and takes no requests; ask again, another replica will answer."
                )
            self._arrived.append(_Request(job, reply, time.monotonic(), shown))
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Take no more jobs, finish the ones there are, and return; what is left after `timeout_s` fails."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        self._abandoned = True
        self._thread.join(GIVE_UP_S)

    def _run(self) -> None:
        try:
            while self._has_more():
                self._drop_cancelled()
                self._admit()
                self._deliver(self._runtime.step())
        except Exception as error:  # noqa: BLE001 - whatever a vendor's runtime raises, nobody may be left waiting
            self._fail_all(
                f"the engine failed and the model stops: {str(error)[:256]}. Ask again; see the server's log."
            )
            self._on_failure(error)
        else:
            self._fail_all("the model stopped before the answer was complete. Ask again.")

    def _has_more(self) -> bool:
        """Wait for something to do; False when it is time to end."""
        with self._changed:
            busy = self._running or self._waiting or self._runtime.has_work()
            while not (busy or self._arrived or self._closing):
                self._changed.wait()
            self._waiting.extend(self._arrived)
            self._arrived.clear()
            return not self._abandoned and bool(self._running or self._waiting or not self._closing)

    def _drop_cancelled(self) -> None:
        gone = [number for number, request in self._running.items() if _has_gone(request)]
        for number in gone:
            self._runtime.cancel(number)
            self._running.pop(number).reply.send("", CANCELLED)
        left = [request for request in self._waiting if _has_gone(request)]
        for request in left:
            self._waiting.remove(request)
            request.reply.send("", CANCELLED)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            request, number = self._waiting.popleft(), next(self._numbers)
            self._running[number] = request
            self._runtime.add(number, request.job.prompt, request.job.sampling)

    def _deliver(self, steps: Iterable[Progress]) -> None:
        current = [(step, self._running[step.number]) for step in steps if step.number in self._running]
        for step, request in current:
            request.add(step)
            if step.finish_reason or step.failure:
                del self._running[step.number]
            if step.failure:
                request.reply.fail(step.failure)
        due = [(s, r) for s, r in current if not s.failure and (s.finish_reason or r.is_read)]
        for (step, request), text in zip(due, self._decode([r.text.window for _, r in due]), strict=True):
            piece = request.piece(text, final=bool(step.finish_reason))
            reason = STOP if request.stop_words.found else step.finish_reason
            if reason:
                self._end(step.number)
                request.reply.send(piece, reason, request.usage, request.logprobs)
            elif piece:
                request.reply.send(piece, "", None, request.logprobs)
                request.logprobs = []
        self._cut([request.text for step, request in due if step.number in self._running and request.text.is_long])

    def _end(self, number: int) -> None:
        """Free the slot of a request whose answer ends at a stop word, of which the runtime does not know."""
        if self._running.pop(number, None):
            self._runtime.cancel(number)

    def _cut(self, streams: Sequence[TextStream]) -> None:
        for stream, text in zip(streams, self._decode([stream.kept() for stream in streams]), strict=True):
            stream.cut(text)

    def _decode(self, windows: Sequence[Sequence[int]]) -> Sequence[str]:
        return self._tokenizer.decode(windows) if windows else []

    def _fail_all(self, message: str) -> None:
        with self._changed:
            self._closing = True
            everyone = [*self._running.values(), *self._waiting, *self._arrived]
            self._running, self._waiting, self._arrived = {}, deque(), deque()
        for request in everyone:
            request.reply.fail(message)


def _has_gone(request: _Request) -> bool:
    now = time.monotonic()
    if now - request.checked_s < CANCEL_CHECK_S:
        return False
    request.checked_s = now
    return request.reply.is_cancelled()
