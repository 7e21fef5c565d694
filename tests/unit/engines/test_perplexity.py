"""Perplexity by its definition."""

import math

import numpy as np
import pytest

from tasks.engines.checkpoint.perplexity import perplexity


def uniform(vocabulary):
    return lambda ids: np.zeros((len(ids), vocabulary))


def test_a_model_that_knows_nothing_is_as_perplexed_as_its_vocabulary_is_large():
    assert perplexity([[0, 1, 2]], uniform(50)).value == pytest.approx(50)


def test_a_model_that_is_certain_and_right_has_perplexity_one():
    def certain(ids):
        logits = np.zeros((len(ids), 4))
        logits[np.arange(len(ids) - 1), ids[1:]] = 1000
        return logits

    assert perplexity([[0, 1, 2, 3]], certain).value == pytest.approx(1)


def test_the_mean_is_over_tokens_and_not_over_texts():
    def halves(ids):
        chances = np.full((len(ids), 2), 0.5) if len(ids) > 2 else np.tile([0.25, 0.75], (len(ids), 1))
        return np.log(chances)

    measured = perplexity([[0, 0, 0, 0], [0, 0]], halves)

    assert measured.tokens == 4
    assert measured.value == pytest.approx(math.exp((3 * math.log(2) + math.log(4)) / 4))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_perplexity_that_is_not_finite_is_no_number(bad):
    assert perplexity([[0, 1]], lambda ids: np.full((len(ids), 2), bad)).value is None


def test_a_perplexity_too_large_for_a_number_is_no_number():
    logits = np.array([[1e6, 0.0], [0.0, 0.0]])

    assert perplexity([[0, 1]], lambda _: logits).value is None


@pytest.mark.parametrize("sequences", [[], [[]], [[7]]])
def test_without_a_predicted_token_there_is_no_perplexity(sequences):
    measured = perplexity(sequences, uniform(8))

    assert (measured.value, measured.tokens) == (None, 0)


@pytest.mark.parametrize("length", [127, 128, 129, 130, 300])
def test_every_token_of_a_long_text_counts_once(length):
    measured = perplexity([[0] * length], uniform(5))

    assert measured.tokens == length - 1
    assert measured.value == pytest.approx(5)
