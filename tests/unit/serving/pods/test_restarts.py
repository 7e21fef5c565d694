"""An engine that is started again: who is refused, and that nobody else notices."""

from dataclasses import replace

import pytest
from generation.running.restarts import CHANGED, EngineError, RestartedEngine
from generation.runtime import Sampling, TokenLogprob

from tests.fakes.servers.generation_runtime import FakeRuntime

LONG = Sampling(100)


class Engine(FakeRuntime):
    """Fails for good once it has made `harmless[prompt]` tokens of a prompt's answer."""

    max_new_tokens = 7

    def __init__(self, harmless, answers):
        super().__init__(answers)
        self.harmless, self.made, self.failure, self.on_end, self.closed = harmless, {}, None, None, False
        self.scores = {}

    def add(self, number, prompt, sampling):
        super().add(number, prompt, sampling)
        self.scores[number] = [TokenLogprob(token, None) for token in prompt]

    def watch(self, on_end):
        self.on_end = on_end

    def step(self):
        for number, (prompt, _, _) in self.left.items():
            if self.made.get(number, 0) == self.harmless.get(prompt.decode()):
                self.failure = EngineError(f"no grammar for {prompt.decode()}")
        if self.failure:
            raise self.failure
        steps = [replace(step, prompt_logprobs=self.scores.pop(step.number, ())) for step in super().step()]
        for step in steps:
            self.made[step.number] = self.made.get(step.number, 0) + 1
        return steps

    def close(self):
        self.closed = True


class Engines:
    """Starts them; the test sees each one."""

    def __init__(self, harmless=None, answers=None):
        self.started, self.harmless, self.answers, self.broken = [], harmless or {}, answers or {}, False

    def __call__(self):
        if self.broken:
            raise EngineError("cannot be loaded")
        self.started.append(Engine(self.harmless, self.answers))
        return self.started[-1]


def answers_of(runtime, count):
    texts, ends = {}, {}
    for _ in range(200):
        for step in runtime.step():
            texts[step.number] = texts.get(step.number, "") + bytes(step.tokens).decode()
            if step.finish_reason or step.failure:
                ends[step.number] = (texts[step.number], step.failure or step.finish_reason)
        if len(ends) == count:
            return ends
    raise AssertionError(ends)


def test_a_request_that_ends_the_engine_is_refused_and_the_next_one_is_answered():
    engines = Engines({"bad": 0})
    runtime = RestartedEngine(engines)
    runtime.add(0, b"bad", LONG)
    ((text, failure),) = answers_of(runtime, 1).values()
    runtime.add(1, b"good", LONG)

    assert (text, failure) == ("", "the engine cannot take this request: no grammar for bad. Change it.")
    assert answers_of(runtime, 1) == {1: ("good", "stop")}
    assert [engine.closed for engine in engines.started] == [True, True, False]


@pytest.mark.parametrize("harmless", [0, 1, 3])
def test_answers_beside_a_request_that_ends_the_engine_go_on_where_they_were(harmless):
    runtime = RestartedEngine(Engines({"terrible": harmless}))
    runtime.add(0, b"under way", LONG)
    runtime.add(1, b"also here", LONG)
    before = [step for _ in range(3) for step in runtime.step()]
    runtime.add(2, b"terrible", LONG)
    runtime.add(3, b"just came", LONG)
    ends = answers_of(runtime, 4)

    assert bytes(step.tokens[0] for step in before if step.number == 0) + ends[0][0].encode() == b"under way"
    assert bytes(step.tokens[0] for step in before if step.number == 1) + ends[1][0].encode() == b"also here"
    assert ends[3] == ("just came", "stop")
    assert ends[2][1].startswith("the engine cannot take this request")


def test_scores_of_a_prompt_are_reported_once_though_its_answer_is_begun_again():
    runtime = RestartedEngine(Engines({"bad": 1}))
    runtime.add(0, b"good", LONG)
    runtime.add(1, b"bad", LONG)
    steps = [step for _ in range(20) for step in runtime.step()]

    assert [bytes(step.tokens) for step in steps if step.number == 0 and step.prompt_logprobs] == [b"g"]
    assert b"".join(bytes(step.tokens) for step in steps if step.number == 0) == b"good"


def test_two_requests_that_end_the_engine_are_refused_both():
    runtime = RestartedEngine(Engines({"bad": 0, "worse": 1}))
    for number, prompt in enumerate((b"bad", b"good", b"worse", b"fine")):
        runtime.add(number, prompt, LONG)
    ends = answers_of(runtime, 4)

    assert [ends[number][1][:10] for number in range(4)] == ["the engine", "stop", "the engine", "stop"]


def test_an_engine_that_is_killed_once_loses_no_request():
    engines = Engines()
    runtime = RestartedEngine(engines)
    runtime.add(0, b"hello", LONG)
    first = runtime.step()
    engines.started[0].failure = EngineError("killed")

    assert bytes(first[0].tokens) == b"h"
    assert answers_of(runtime, 1) == {0: ("ello", "stop")}


def test_an_answer_that_becomes_another_one_is_not_put_together_of_both():
    engines = Engines()
    runtime = RestartedEngine(engines)
    runtime.add(0, b"hello", LONG)
    runtime.step()
    engines.started[0].failure, engines.answers = EngineError("killed"), {"hello": "other"}

    assert answers_of(runtime, 1) == {0: ("", CHANGED)}


def test_a_seed_is_chosen_once():
    engines = Engines()
    runtime = RestartedEngine(engines)
    seeds = []
    for engine in engines.started:
        engine.add = lambda number, prompt, sampling: seeds.append(sampling.seed)
    runtime.add(0, b"hello", Sampling(9, 1.0))
    runtime.add(1, b"hello", Sampling(9, 1.0, seed=3))
    runtime.add(2, b"hello", Sampling(9))

    assert isinstance(seeds[0], int)
    assert seeds[1:] == [3, None]


def test_a_client_that_leaves_a_trial_or_the_queue_behind_it_keeps_nobody_waiting():
    engines = Engines({"bad": 0})
    runtime = RestartedEngine(engines)
    for number, prompt in enumerate((b"slow", b"bad", b"good")):
        runtime.add(number, prompt, LONG)
    runtime.step()
    runtime.cancel(0)
    runtime.cancel(1)

    assert answers_of(runtime, 1) == {2: ("good", "stop")}


def test_an_idle_engine_that_ends_is_started_again_when_it_is_looked_at():
    engines = Engines()
    runtime, woken = RestartedEngine(engines), []
    runtime.watch(lambda: woken.append(True))
    engines.started[0].failure = EngineError("killed")
    engines.started[0].on_end()
    runtime.step()
    engines.started[1].on_end()

    assert (len(engines.started), len(woken)) == (2, 2)


def test_an_engine_that_cannot_be_started_again_is_a_failure_of_all():
    engines = Engines({"bad": 0})
    runtime = RestartedEngine(engines)
    runtime.add(0, b"bad", LONG)
    engines.broken = True
    with pytest.raises(EngineError, match="cannot be loaded"):
        runtime.step()
