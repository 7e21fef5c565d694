"""Log-probabilities of prompts by the openvino model's own code, over a network that gives the logits of a test."""

from types import SimpleNamespace

import numpy as np
import prompt_scores
import pytest

VOCABULARY = 5000


class Network:
    """A compiled model: the logits of each position are rows of a table."""

    inputs = (SimpleNamespace(names={"input_ids"}),)

    def __init__(self, table):
        self.table = table

    def create_infer_request(self):
        return SimpleNamespace(infer=lambda given: {"logits": self.table[given["input_ids"]]})


@pytest.fixture
def table():
    """Some tokens are as likely as others, among them at the limit of what is reported."""
    return np.random.default_rng(7).integers(0, 40, (9, VOCABULARY)).astype(np.float32)


def scored(table, prompt, alternatives):
    scores = prompt_scores.PromptScores(Network(table), prompt, alternatives)
    while not scores.advance():
        pass
    return [*scores.found, scores.next(3)]


@pytest.mark.parametrize("alternatives", [0, 1, 20])
def test_the_likeliest_tokens_are_reported_in_order_and_of_equal_ones_the_first(table, alternatives):
    prompt = [1, 4, 8, 2] * 40
    _, *found = scored(table, prompt, alternatives)

    assert [each.token for each in found] == [*prompt[1:], 3]
    for before, entry in zip(prompt, found, strict=True):
        expected = np.argsort(-table[before], kind="stable")[:alternatives]
        assert [token for token, _ in entry.alternatives] == expected.tolist()


def test_no_token_has_the_whole_vocabulary_sorted(table, monkeypatch):
    """It took 22 ms of 152,000 tokens."""
    sizes, argsort = [], np.argsort
    monkeypatch.setattr(prompt_scores.np, "argsort", lambda row, **how: sizes.append(len(row)) or argsort(row, **how))
    scored(table, [1, 4, 8, 2], 20)

    assert sizes
    assert max(sizes) < VOCABULARY / 10
