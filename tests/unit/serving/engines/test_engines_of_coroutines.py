"""An engine whose answers are coroutines behind the scheduler, and what vendors report of each token."""

import asyncio
import queue
from types import SimpleNamespace

import pytest
from generation.answers.logprobs import token_logprobs
from generation.requests.question import Question, RefusedError, check
from generation.running.async_runtime import AsyncRuntime, end_of
from generation.runtime import Progress, Sampling
from generation.settings import Limits

from tests.support.waiting import PATIENCE_S


class Engine(AsyncRuntime):
    """Counts up to `max_tokens`; a prompt that begins with 0 waits, one with 1 ends the engine."""

    def __init__(self):
        super().__init__()
        self.left = queue.Queue()

    async def answer(self, number, prompt, sampling):
        if prompt[0] == 1:
            raise OSError("the engine is dead")
        try:
            for token in range(sampling.max_tokens):
                yield Progress(number, [token], "length" if token == sampling.max_tokens - 1 else "")
            if prompt[0] == 0:
                await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            self.left.put(number)
            raise


def steps(engine, until):
    made = []
    while not until(made):
        made += engine.step()
    return made


def test_what_several_answers_make_arrives_in_their_order():
    engine = Engine()
    for number in (1, 2):
        engine.add(number, [2], Sampling(max_tokens=3))

    made = steps(engine, lambda found: len([each for each in found if each.finish_reason]) == 2)

    for number in (1, 2):
        assert [each.tokens for each in made if each.number == number] == [[0], [1], [2]]


def test_an_answer_that_nobody_wants_is_told_so():
    engine = Engine()
    engine.add(7, [0], Sampling(max_tokens=1))
    steps(engine, lambda found: found)

    engine.cancel(7)

    assert engine.left.get(timeout=PATIENCE_S) == 7


def test_a_failure_of_the_engine_is_raised_by_a_step_whether_a_request_met_it_or_not():
    asked, idle = Engine(), Engine()
    asked.add(1, [1], Sampling(max_tokens=1))
    idle.fail(OSError("the engine is dead"))

    for engine in (asked, idle):
        assert engine.has_work()
        with pytest.raises(OSError, match="the engine is dead"):
            steps(engine, lambda _: False)


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("stop", ("stop", "")),
        ("repetition", ("stop", "")),
        ("length", ("length", "")),
        *(
            (reason, ("", f"the engine ended the answer: {reason}. Ask again."))
            for reason in ("error", "abort", "timeout", None)
        ),
    ],
)
def test_only_the_end_of_a_whole_answer_is_told_as_one(reason, end):
    assert end_of(reason) == end


@pytest.mark.parametrize("chosen", [3, 9])
def test_as_many_alternatives_are_reported_as_were_asked_for(chosen):
    """VLLM's mapping has the chosen token besides, where it is not among the likeliest."""
    likeliest = {3: -0.1, 4: -2.0}
    reported = {token: SimpleNamespace(logprob=value) for token, value in ({9: -7.0} if chosen == 9 else {}).items()}
    reported |= {token: SimpleNamespace(logprob=value) for token, value in likeliest.items()}

    (entry,) = token_logprobs([chosen], [reported], 2)

    assert entry.alternatives == tuple(likeliest.items())
    assert entry.logprob == reported[chosen].logprob


@pytest.mark.parametrize(("temperature", "refused"), [(2.0, False), (2.5, True)])
def test_a_temperature_above_the_engines_highest_is_refused_by_its_name(temperature, refused):
    limits = Limits(64, 128, 16, max_temperature=2.0)

    if not refused:
        check(Question("Hi?", temperature=temperature), limits, None)
        return
    with pytest.raises(RefusedError, match=r"temperature is 2\.5; this model takes at most 2"):
        check(Question("Hi?", temperature=temperature), limits, None)
