"""An engine that is started again when it fails, so that a request which ends it fails alone. Computes only.

A vendor's runtime may fail as a whole at one request: OpenVINO GenAI (2026.4) raises at every step after a grammar it
cannot compile, and a process may be killed. The requests that may have been the reason are begun again, each alone
until it is beyond that point; the one at which the engine fails again is refused, and all others go on. What a client
has read already is computed again and compared: an answer goes on where it was, or ends with an error that asks for a
retry.
"""

import itertools
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from generation.runtime import Progress, Runtime, Sampling

SEED_BITS = 32
CHANGED = "the engine failed and was started again, and the answer cannot go on where it was. Ask again."


class EngineError(Exception):
    """The engine failed, or its process ended."""


class Engine(Runtime, Protocol):
    """A Runtime of which every method may raise EngineError, and which is of no use then.

    `max_new_tokens` is what an answer has at most, by the model's own generation config.
    """

    max_new_tokens: int

    def watch(self, on_end: Callable[[], None]) -> None:
        """Have `on_end` called if the engine ends before it is closed."""

    def close(self) -> None:
        """End it, whatever it is doing."""


@dataclass
class _Request:
    """A request with what was made of its answer: `made` by any engine, `here` how much of it by this one.

    `proven_at` is how much had been made when it was begun: it is harmless beyond that.
    """

    prompt: Sequence[int]
    sampling: Sampling
    made: list[int] = field(default_factory=list)
    here: int = 0
    proven_at: int = 0


class RestartedEngine:
    """A Runtime. What it raises is EngineError of an engine that cannot be started."""

    def __init__(self, start: Callable[[], Engine]) -> None:
        """Start the first engine; `start` raises EngineError if it cannot be loaded."""
        self._start, self._engine = start, start()
        self.max_new_tokens = self._engine.max_new_tokens
        self._on_end: Callable[[], None] = lambda: None
        self._failure: EngineError | None = None
        self._numbers = itertools.count()
        self._requests: dict[int, _Request] = {}
        self._running: dict[int, int] = {}
        """Requests by the number that the engine knows them by, another one each time they are begun."""
        self._suspects: deque[int] = deque()
        """Requests that are begun alone, one after another, while all others wait."""

    def watch(self, on_end: Callable[[], None]) -> None:
        """Have `on_end` called when an engine ends by itself; the next `step` starts another one."""
        self._on_end = on_end
        self._engine.watch(on_end)

    def add(self, number: int, prompt: Sequence[int], sampling: Sampling) -> None:
        """Its seed is chosen here where the request has none: what is begun again must become the same answer."""
        if sampling.temperature > 0 and sampling.seed is None:
            sampling = replace(sampling, seed=secrets.randbits(SEED_BITS))
        self._requests[number] = _Request(prompt, sampling)
        if not self._suspects:
            self._begin(number)

    def step(self) -> list[Progress]:
        """Advance what runs, or start an engine again that has failed."""
        try:
            if self._failure is not None:
                raise self._failure
            steps = self._engine.step()
        except EngineError as error:
            return self._restart(error)
        found = [self._new(step) for step in steps if step.number in self._running]
        for step in found:
            if step.finish_reason or step.failure:
                self._forget(step.number)
        self._end_trial()
        return [step for step in found if step.tokens or step.finish_reason or step.failure]

    def cancel(self, number: int) -> None:
        """Nothing is reported of it any more."""
        if number in self._requests:
            self._pause(number)
            self._forget(number)
            self._end_trial()

    def has_work(self) -> bool:
        """Whether the engine has something to free."""
        return self._failure is None and self._engine.has_work()

    def close(self) -> None:
        """End the engine."""
        self._engine.close()

    def _begin(self, number: int) -> None:
        request, known_as = self._requests[number], next(self._numbers)
        request.here, request.proven_at = 0, len(request.made)
        self._running[known_as] = number
        self._try(lambda: self._engine.add(known_as, request.prompt, request.sampling))

    def _pause(self, number: int) -> None:
        for known_as in [each for each, running in self._running.items() if running == number]:
            del self._running[known_as]
            self._try(partial(self._engine.cancel, known_as))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except EngineError as error:
            self._failure = error

    def _forget(self, number: int) -> None:
        del self._requests[number]
        self._running = {known_as: each for known_as, each in self._running.items() if each != number}

    def _restart(self, error: EngineError) -> list[Progress]:
        """Start an engine; refuse the request that was alone with the one that failed, else find it among those."""
        self._engine.close()
        self._engine, self._failure = self._start(), None
        self._engine.watch(self._on_end)
        refused: list[Progress] = []
        if self._suspects:
            number = self._suspects[0]
            refused.append(
                Progress(number, (), failure=f"the engine cannot take this request: {str(error)[:256]}. Change it.")
            )
            self._forget(number)
        else:
            running = list(self._running.values())
            fresh = [number for number in running if not self._requests[number].here]
            self._suspects.extend(fresh or running)
        self._running = {}
        if not refused:
            self._begin_trial()
        self._end_trial()
        return refused

    def _end_trial(self) -> None:
        """Go on once the request that runs alone is beyond where the engine failed, or has ended."""
        while self._suspects:
            number = self._suspects[0]
            request = self._requests.get(number)
            if request is not None and request.here <= request.proven_at:
                return
            self._suspects.popleft()
            self._pause(number)
            self._begin_trial()

    def _begin_trial(self) -> None:
        """Begin the next suspect alone; without one, everybody."""
        while self._suspects and self._suspects[0] not in self._requests:
            self._suspects.popleft()
        for number in [self._suspects[0]] if self._suspects else list(self._requests):
            self._begin(number)

    def _new(self, step: Progress) -> Progress:
        """What the client has not got yet of a step."""
        number = self._running[step.number]
        request = self._requests[number]
        again = request.made[request.here : request.here + len(step.tokens)]
        known = len(again)
        request.here += len(step.tokens)
        cut_short = bool(step.finish_reason) and request.here < len(request.made)
        if list(step.tokens[:known]) != again or cut_short:
            self._pause(number)
            return Progress(number, (), failure=CHANGED)
        request.made += step.tokens[known:]
        prompt = () if known else step.prompt_logprobs
        tokens, logprobs = step.tokens[known:], step.logprobs[known:]
        return replace(step, number=number, tokens=tokens, logprobs=logprobs, prompt_logprobs=prompt)
