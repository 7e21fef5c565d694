"""A Runtime in which a model thinks as it likes, and what it answers then obeys the grammar of its request.

A grammar holds from the first token that a runtime makes, and no EBNF of xgrammar names a token: a mark that ends a
thought could be spelled in others. So the answer is begun a second time, behind the thought. Computes only.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from generation.model_files.channels import Thinking
from generation.runtime import Progress, Runtime, Sampling, TokenLogprob


@dataclass
class _Thought:
    """What a request has made before its answer; `begun` once it has the mark that begins a thought."""

    prompt: Sequence[int]
    sampling: Sampling
    begun: bool
    made: list[int] = field(default_factory=list)
    over: bool = False

    def take(self, tokens: Sequence[int], marks: Thinking) -> list[int]:
        """Those of `tokens` that belong to it, with its marks; what follows is made again under the grammar."""
        taken: list[int] = []
        for token in tokens:
            if not self.begun and token != marks.begin:
                self.over = True
            if self.over:
                break
            self.begun, self.over = True, token == marks.end
            taken.append(token)
        self.made += taken
        return taken

    @property
    def answer(self) -> Sampling:
        """How the answer behind it is made. The prompt's tokens were reported with the thought."""
        controls, made = self.sampling.controls, len(self.made)
        controls = replace(controls, min_tokens=max(0, controls.min_tokens - made), prompt_logprobs=None)
        return replace(self.sampling, max_tokens=self.sampling.max_tokens - made, controls=controls)


class ThoughtsFirst:
    """Passes on all requests but those that think and have a grammar, which it begins twice."""

    def __init__(self, runtime: Runtime, marks: Thinking | None) -> None:
        """Without `marks` nothing thinks."""
        self._runtime, self._marks = runtime, marks
        self._inner = itertools.count()
        self._numbers: dict[int, int] = {}
        """Requests by the number that the runtime knows them by."""
        self._thoughts: dict[int, _Thought] = {}

    def add(self, number: int, prompt: Sequence[int], sampling: Sampling) -> None:
        """As Runtime."""
        if self._marks is not None and sampling.thinks and sampling.controls.grammar:
            self._thoughts[number] = _Thought(prompt, sampling, begun=self._marks.is_begun(prompt))
            sampling = replace(sampling, controls=replace(sampling.controls, grammar="", min_tokens=0))
        self._begin(number, prompt, sampling)

    def step(self) -> list[Progress]:
        """As Runtime."""
        steps = [self._new(step) for step in self._runtime.step() if step.number in self._numbers]
        return [step for step in steps if step.tokens or step.finish_reason or step.failure or step.prompt_logprobs]

    def cancel(self, number: int) -> None:
        """As Runtime."""
        self._thoughts.pop(number, None)
        for inner in [inner for inner, each in self._numbers.items() if each == number]:
            del self._numbers[inner]
            self._runtime.cancel(inner)

    def has_work(self) -> bool:
        """As Runtime."""
        return self._runtime.has_work()

    def _begin(self, number: int, prompt: Sequence[int], sampling: Sampling) -> None:
        inner = next(self._inner)
        self._numbers[inner] = number
        self._runtime.add(inner, prompt, sampling)

    def _new(self, step: Progress) -> Progress:
        number = self._numbers[step.number]
        if step.finish_reason or step.failure:
            del self._numbers[step.number]
        if step.failure:
            self._thoughts.pop(number, None)
        step = replace(step, number=number)
        thought = self._thoughts.get(number)
        return step if thought is None else self._thinking(step, thought)

    def _thinking(self, step: Progress, thought: _Thought) -> Progress:
        """A step of a thought; at its end, which the model may have left out, the answer begins."""
        assert self._marks is not None
        taken = thought.take(step.tokens, self._marks)
        logprobs = [*step.logprobs[: len(taken)]]
        if step.finish_reason == "stop" and thought.begun and not thought.over:
            taken += thought.take([self._marks.end], self._marks)
            logprobs += [TokenLogprob(self._marks.end, None)] if thought.sampling.controls.logprobs is not None else []
        step = replace(step, tokens=taken, logprobs=logprobs)
        if not (thought.over or step.finish_reason):
            return step
        has_room = thought.answer.max_tokens > 0 and (thought.over or step.finish_reason != "length")
        self.cancel(step.number)
        if has_room:
            self._begin(step.number, (*thought.prompt, *thought.made), thought.answer)
        return replace(step, finish_reason="" if has_room else "length")
