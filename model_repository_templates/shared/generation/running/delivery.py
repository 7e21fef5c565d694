"""Sends tokens to clients, in a thread beside the engine's, which never waits for a response to be on its way.

A response costs a trip to Triton's process. Tokens that the engine makes meanwhile go with the next response of their
request, so a client gets as many responses as there is time for, and the engine loses none.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from generation.answers.answer_text import STOP, StopWords
from generation.answers.text_stream import TextStream
from generation.requests.question import Job
from generation.runtime import Parts, Progress, Split, Tokenizer, TokenLogprob, Usage

CANCELLED = "cancelled"
PAUSE_S = 0.01
"""Tokens that come sooner after others share a response with them: one costs more CPU than a small model takes for a
token, and nobody reads 100 pieces a second. The end of an answer does not wait."""
LONGEST_PAUSE_S, BUSY_SHARE = 0.04, 0.25
"""The pause is longer where responses to many clients would take more than this share of the time, up to 25 pieces a
second: what they take of the CPU, the engine may lack."""
PROMPT_PART = 128
"""Tokens of a prompt whose log-probabilities one response of a stream has, up to 2 KiB for each: readers of streams
limit their lines, as OpenAI's API does to 1 MiB."""
CANCEL_CHECK_S = 0.05
"""How often each client is checked for having left: asking Triton costs a trip to its process."""
LOOK_S = 0.005
"""How long clients are checked at a time: no stream may stop for the 0.1 s that 1,000 waiting ones take."""


class Reply(Protocol):
    """The way back to one client. After a finish reason or a failure nothing more is sent."""

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
        """A piece of the answer; with a finish reason, the last one, and with it the tokens of the whole request.

        `logprobs` are those of every token of the answer since the last piece; `thought` is what the model thought
        since then; `stop_word` is the one that ended the answer. The first pieces have those of the prompt's tokens.
        """

    def fail(self, message: str) -> None:
        """No answer, or no more of it."""

    def is_cancelled(self) -> bool:
        """Whether the client has gone."""


@dataclass(eq=False)
class Request:
    """A job, the way back, and what its answer is so far.

    `gone` is set once the client has gone, `lost` once its answer could not be given out and it was told so.
    """

    job: Job
    reply: Reply
    split: Split
    gone: bool = False
    lost: bool = False
    text: TextStream = field(default_factory=TextStream)
    thought: TextStream = field(default_factory=TextStream)
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: Sequence[TokenLogprob] = ()
    tokens: int = 0
    stop_words: StopWords = field(init=False)

    def __post_init__(self) -> None:
        self.stop_words = StopWords(self.job.stop_words)

    @property
    def usage(self) -> Usage:
        """Tokens of the request so far."""
        return Usage(len(self.job.prompt), self.tokens)

    @property
    def is_read(self) -> bool:
        """Whether its text matters before its end."""
        return self.job.stream or bool(self.job.stop_words)

    def add(self, step: Progress) -> None:
        """Take what a step made."""
        self.prompt_logprobs = step.prompt_logprobs or self.prompt_logprobs
        if len(step.logprobs) == len(step.tokens):  # what is not shown is left out here as well
            self.logprobs += [entry for entry in step.logprobs if self._take(self.split([entry.token])).answer]
        else:  # those of some tokens, or of none
            self._take(self.split(step.tokens))
            self.logprobs += step.logprobs
        self.tokens += len(step.tokens)

    def _take(self, parts: Parts) -> Parts:
        self.text.add(parts.answer)
        self.thought.add(parts.thought)
        return parts

    def send_of_prompt(self) -> None:
        """Send the log-probabilities of the prompt but for the part that goes with the next piece of a stream."""
        while self.job.stream and len(self.prompt_logprobs) > PROMPT_PART:
            part, self.prompt_logprobs = self.prompt_logprobs[:PROMPT_PART], self.prompt_logprobs[PROMPT_PART:]
            self.reply.send("", "", prompt_logprobs=part)

    def piece_of_thought(self, text: str, *, final: bool) -> str:
        """What to send of the thoughts now, when `text` is what their window decodes to. No stop word ends them."""
        return self.thought.advance(text, final=final) if self.job.stream or final else ""

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


class Delivery:
    """Gives out what steps made. Every request that gets a finish reason or a failure gets nothing after it."""

    def __init__(
        self, tokenizer: Tokenizer, clients: Callable[[], Iterable[Request]], on_error: Callable[[], None]
    ) -> None:
        """Start the thread.

        Args:
            tokenizer: makes text of tokens.
            clients: lists the requests whose clients may leave; it is called from the delivery's thread.
            on_error: called when `check` has something to raise, from the thread that met it.
        """
        self._tokenizer, self._clients, self._on_error = tokenizer, clients, on_error
        self._changed = threading.Condition()
        self._waiting: dict[Request, list[Progress]] = {}
        self._closing = self._has_end = False
        self._unseen: Iterator[Request] | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()

    def put(self, steps: Iterable[tuple[Request, Progress]]) -> None:
        """Have the delivery's thread send these steps, after those that it already has."""
        with self._changed:
            before = bool(self._waiting), self._has_end
            for request, step in steps:
                self._waiting.setdefault(request, []).append(step)
                self._has_end = self._has_end or bool(step.finish_reason or step.failure)
            if before != (bool(self._waiting), self._has_end):  # else the thread knows when to go on
                self._changed.notify()

    def check(self) -> None:
        """Find out whether everything so far could be sent.

        Raises:
            Exception: why something could not. The clients of what was lost have been told.
        """
        if self._error is not None:
            raise self._error

    def fail(self, requests: Iterable[Request], message: str) -> None:
        """Tell these clients that there is no answer, or no more of it."""
        self.put((request, Progress(0, (), failure=message)) for request in requests)

    def close(self, timeout_s: float) -> None:
        """Send what is left, for `timeout_s` seconds at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def give(self, steps: Mapping[Request, list[Progress]]) -> list[Request]:
        """Send each request's steps now, in the caller's thread.

        Nothing is raised; `check` does that.

        Returns:
            The requests whose answers ended at a stop word.
        """
        left = {request: list(made) for request, made in steps.items() if not request.lost}
        try:
            ends = [(request, made.pop()) for request, made in left.items() if is_abrupt(made[-1])]
            early = [(request, taken_before_stop_words(request, made)) for request, made in left.items()]
            self._give([(request, merged(made)) for request, made in early if made])
            stopped = self._give([(request, merged(made)) for request, made in left.items() if made])
            self._give(ends)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, nobody may be left waiting
            self._error = error
            for request in left:
                request.lost = True
                with contextlib.suppress(Exception):
                    request.reply.fail(f"the answer could not be given out: {str(error)[:256]}. Ask again.")
            self._on_error()
            return []
        return stopped

    def _give(self, steps: Sequence[tuple[Request, Progress]]) -> list[Request]:
        """Send the steps, of which each request has one; the requests whose answers ended at a stop word."""
        for request, step in steps:
            if step.failure:
                request.reply.fail(step.failure)
            elif step.finish_reason == CANCELLED:
                request.reply.send("", CANCELLED)
            else:
                request.add(step)
        due = [
            (request, step)
            for request, step in steps
            if not is_abrupt(step) and (step.finish_reason or request.is_read)
        ]
        stopped = []
        texts = self._decode([request.text.window for request, _ in due])
        thoughts = self._decode([request.thought.window for request, _ in due])
        for (request, step), text, thinking in zip(due, texts, thoughts, strict=True):
            piece = request.piece(text, final=bool(step.finish_reason))
            reason = STOP if request.stop_words.found else step.finish_reason
            thought = request.piece_of_thought(thinking, final=bool(reason))
            request.send_of_prompt()
            if reason:
                found, of_prompt = request.stop_words.found, request.prompt_logprobs
                request.reply.send(piece, reason, request.usage, request.logprobs, thought, found, of_prompt)
            elif piece or thought:
                request.reply.send(piece, "", None, request.logprobs, thought, "", request.prompt_logprobs)
                request.logprobs, request.prompt_logprobs = [], ()
            if reason and not step.finish_reason:
                stopped.append(request)
        ended = {request for request, step in due if step.finish_reason}.union(stopped)
        going_on = [request for request, _ in due if request not in ended]
        self._cut([stream for each in going_on for stream in (each.text, each.thought) if stream.is_long])
        return stopped

    def _run(self) -> None:
        look_at = give_at = time.monotonic()
        while True:
            with self._changed:
                while (wait_s := self._next_at(give_at, look_at) - time.monotonic()) > 0:
                    self._changed.wait(wait_s)
                taken, self._waiting, self._has_end = self._waiting, {}, False
                if not taken and self._closing:
                    return
            began = time.monotonic()
            self.give(taken)
            if taken:
                give_at = began + pause_s(time.monotonic() - began)
            if time.monotonic() >= look_at and self._look():
                look_at = time.monotonic() + CANCEL_CHECK_S

    def _next_at(self, give_at: float, look_at: float) -> float:
        if self._has_end or self._closing:
            return 0.0
        return min(give_at, look_at) if self._waiting else look_at

    def _look(self) -> bool:
        """Look for LOOK_S which clients have gone, from where the last look ended; whether that was all of them."""
        ends_at = time.monotonic() + LOOK_S
        try:
            self._unseen = self._unseen or iter(self._clients())
            for request in self._unseen:
                request.gone = request.gone or request.reply.is_cancelled()
                if time.monotonic() >= ends_at:
                    return False
        except Exception as error:  # noqa: BLE001 - the scheduler fails everyone when it checks
            self._error = error
            self._on_error()
        self._unseen = None
        return True

    def _cut(self, streams: Sequence[TextStream]) -> None:
        for stream, text in zip(streams, self._decode([stream.kept() for stream in streams]), strict=True):
            stream.cut(text)

    def _decode(self, windows: Sequence[Sequence[int]]) -> Sequence[str]:
        texts = iter(self._tokenizer.decode(written) if (written := [each for each in windows if each]) else ())
        return [next(texts) if each else "" for each in windows]


def pause_s(took_s: float) -> float:
    """From the beginning of responses that took so long to the beginning of the next ones."""
    return max(PAUSE_S, min(LONGEST_PAUSE_S, took_s / BUSY_SHARE))


def is_abrupt(step: Progress) -> bool:
    """Whether it ends an answer without a last piece."""
    return bool(step.failure) or step.finish_reason == CANCELLED


def taken_before_stop_words(request: Request, made: list[Progress]) -> list[Progress]:
    """Take from `made` the steps whose text may contain a stop word, if later steps of it may not.

    Steps that are given out together would otherwise have all of their text searched once the last one counts.
    """
    if not request.job.stop_words:
        return []
    tokens = itertools.accumulate((len(step.tokens) for step in made), initial=request.tokens)
    count = sum(so_far < request.job.sampling.controls.min_tokens for so_far in itertools.islice(tokens, 1, None))
    if count == len(made):
        return []
    early, made[:] = made[:count], made[count:]
    return early


def merged(steps: Sequence[Progress]) -> Progress:
    """Several steps of one request as if they had been one."""
    if len(steps) == 1:
        return steps[0]
    last = steps[-1]
    return Progress(
        last.number,
        tuple(itertools.chain.from_iterable(step.tokens for step in steps)),
        last.finish_reason,
        last.failure,
        tuple(itertools.chain.from_iterable(step.logprobs for step in steps)),
        steps[0].prompt_logprobs,
    )
