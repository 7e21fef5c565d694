"""Thoughts before an answer that obeys a grammar: which tokens are whose, and how often the runtime is asked."""

import json
from dataclasses import replace

import pytest
from generation.model_files.channels import Thinking
from generation.running.thoughts_first import ThoughtsFirst
from generation.runtime import Controls, Sampling, TokenLogprob

from tests.fakes.servers.generation_runtime import FakeRuntime

MARKS = Thinking(ord("<"), ord(">"), lambda token: chr(token).isspace())
OBEYS = Controls(grammar='root ::= "1"')


class Runtime(FakeRuntime):
    """Notes how it was asked."""

    def __init__(self, answers):
        super().__init__(answers)
        self.asked = []

    def add(self, number, prompt, sampling):
        super().add(number, bytes(prompt), sampling)
        self.asked.append((bytes(prompt).decode(), sampling.max_tokens, sampling.controls.grammar))


def answered(answers, *, prompt=b"Hi", max_tokens=20, thinks=True, controls=OBEYS, marks=MARKS):
    """The text of all tokens, how it ended, and how the runtime was asked."""
    inner = Runtime(answers)
    runtime = ThoughtsFirst(inner, marks)
    runtime.add(7, prompt, Sampling(max_tokens, thinks=thinks, controls=controls))
    text, reason = "", ""
    while not reason:
        for step in runtime.step():
            assert step.number == 7
            text, reason = text + bytes(step.tokens).decode(), step.finish_reason
    assert runtime.step() == []
    assert not inner.left
    return text, reason, inner.asked


def test_the_grammar_holds_behind_the_thought():
    text, reason, asked = answered({"Hi": "<hm>nonsense", "Hi<hm>": "1"})

    assert (text, reason) == ("<hm>1", "stop")
    assert asked == [("Hi", 20, ""), ("Hi<hm>", 16, OBEYS.grammar)]


def test_a_thought_that_the_template_has_begun_needs_no_first_mark():
    text, reason, asked = answered({"Hi<": "hm>", "Hi<hm>": "1"}, prompt=b"Hi<")

    assert (text, reason) == ("hm>1", "stop")
    assert asked[1] == ("Hi<hm>", 17, OBEYS.grammar)


def test_a_model_that_does_not_think_answers_at_once():
    text, _, asked = answered({"Hi": "nonsense"})

    assert asked == [("Hi", 20, ""), ("Hi", 20, OBEYS.grammar)]
    assert text == "nonsense"


def test_a_model_that_does_not_think_has_all_tokens_for_its_answer():
    text, reason, asked = answered({"Hi": "12"}, max_tokens=1)

    assert (text, reason) == ("1", "length")
    assert asked == [("Hi", 1, ""), ("Hi", 1, OBEYS.grammar)]


def test_a_thought_that_ends_without_its_mark_gets_one():
    text, _, asked = answered({"Hi": "<hm", "Hi<hm>": "1"})

    assert text == "<hm>1"
    assert asked[1] == ("Hi<hm>", 16, OBEYS.grammar)


def test_each_token_has_its_log_probability_also_the_mark_that_was_added():
    runtime = ThoughtsFirst(Runtime({"Hi": "<h", "Hi<h>": "1"}), MARKS)
    runtime.add(7, b"Hi", Sampling(20, thinks=True, controls=Controls(grammar="x", logprobs=0)))
    steps = [step for _ in range(4) for step in runtime.step()]

    assert [[each.token for each in step.logprobs] for step in steps if step.tokens[-1:] == [ord(">")]] == [[ord(">")]]


@pytest.mark.parametrize("most", [2, 4])
def test_the_most_tokens_are_those_of_thought_and_answer_together(most):
    text, reason, asked = answered({"Hi": "<hm>x"}, max_tokens=most)

    assert (text, reason, len(asked)) == ("<hm>"[:most], "length", 1)


def test_the_fewest_tokens_are_those_of_both_too():
    inner = Runtime({"Hi": "<hm>x"})
    runtime = ThoughtsFirst(inner, MARKS)
    told = []
    inner.add = lambda number, prompt, sampling: (
        told.append(sampling) or FakeRuntime.add(inner, number, prompt, sampling)
    )
    runtime.add(0, b"Hi", Sampling(20, thinks=True, controls=Controls(grammar="x", min_tokens=6)))
    for _ in range(5):
        runtime.step()

    assert [each.controls.min_tokens for each in told] == [0, 2]


@pytest.mark.parametrize("plain", [{"thinks": False}, {"controls": Controls()}, {"marks": None}])
def test_all_other_requests_are_passed_on(plain):
    text, _, asked = answered({"Hi": "<hm>1"}, **plain)

    assert (text, len(asked)) == ("<hm>1", 1)


def test_a_cancelled_request_is_freed_in_its_thought_and_in_its_answer():
    for steps in (2, 5):
        inner = Runtime({"Hi": "<hm>x", "Hi<hm>": json.dumps("a" * 20)})
        runtime = ThoughtsFirst(inner, MARKS)
        runtime.add(7, b"Hi", Sampling(50, thinks=True, controls=OBEYS))
        for _ in range(steps):
            runtime.step()
        runtime.cancel(7)

        assert not inner.left
        assert runtime.step() == []


class Scores(Runtime):
    """Has the log-probabilities of the prompt where it is asked for them."""

    def __init__(self, answers):
        super().__init__(answers)
        self.to_score = set()

    def add(self, number, prompt, sampling):
        super().add(number, prompt, sampling)
        self.to_score |= {number} if sampling.controls.prompt_logprobs is not None else set()

    def step(self):
        steps = super().step()
        scored = {step.number: [TokenLogprob(ord("H"), None)] for step in steps if step.number in self.to_score}
        self.to_score.clear()
        return [replace(step, prompt_logprobs=scored.get(step.number, ())) for step in steps]


@pytest.mark.parametrize("thought", ["", "<hm>"])
def test_the_prompt_is_scored_once(thought):
    runtime = ThoughtsFirst(Scores({"Hi": f"{thought}x", "Hi<hm>": "1"}), MARKS)
    runtime.add(7, b"Hi", Sampling(20, thinks=True, controls=Controls(grammar="x", prompt_logprobs=0)))
    steps = [step for _ in range(6) for step in runtime.step()]

    assert [step.prompt_logprobs for step in steps if step.prompt_logprobs] == [[TokenLogprob(ord("H"), None)]]
    assert steps[-1].finish_reason == "stop"


def test_nothing_is_kept_of_a_request_that_fails_in_its_thought():
    inner = Runtime({"Hi": "<hm>1"})
    runtime = ThoughtsFirst(inner, MARKS)
    inner.refuses.add(b"no")
    runtime.add(7, b"no", Sampling(20, thinks=True, controls=OBEYS))
    assert [step.failure for step in runtime.step()] == ["no room for this one"]
    runtime.add(7, b"Hi", Sampling(20))

    assert b"".join(bytes(step.tokens) for _ in range(5) for step in runtime.step()) == b"<hm>1"
