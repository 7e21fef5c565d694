"""Perplexity by its definition."""

import math

import numpy as np
import pytest

from slipway.tasks.engines.checkpoint.perplexity import MAX_ROWS, TOP_TOKENS, compared, perplexity


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


def fixed(scores):
    """A model that gives every position the same logits."""
    return lambda ids: np.tile(np.asarray(scores, dtype=np.float64), (len(ids), 1))


def divergence(source_scores, scores, length=200):
    source = perplexity([[0] * length], fixed(source_scores))
    (row,) = compared(source, perplexity([[0] * length], fixed(scores), source))["perplexity_texts"]
    return row[3] / row[0]


def exact(source_scores, scores):
    p, q = (np.exp(each) / np.exp(each).sum() for each in (np.asarray(source_scores), np.asarray(scores)))
    return float((p * np.log(p / q)).sum())


def test_a_model_does_not_diverge_from_itself():
    assert divergence([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == pytest.approx(0, abs=1e-9)


def test_divergence_of_a_small_vocabulary_is_by_its_definition():
    source, other = [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]

    assert divergence(source, other) == pytest.approx(exact(source, other))


def test_divergence_of_a_large_vocabulary_is_close_to_it_and_not_above():
    chances = np.random.default_rng(1)
    source = chances.normal(0, 3, 20 * TOP_TOKENS)
    other = source + chances.normal(0, 0.2, len(source))

    assert 0.8 * exact(source, other) < divergence(source, other, length=3) <= exact(source, other)


def test_every_text_has_its_row_and_very_many_share_them():
    def rows(count):
        source = perplexity([[0, 0, 0]] * count, uniform(5))
        return compared(source, perplexity([[0, 0, 0]] * count, uniform(5), source))["perplexity_texts"]

    assert [row[:2] for row in rows(3)] == [[2, pytest.approx(2 * math.log(5))]] * 3
    assert len(rows(1000)) == MAX_ROWS
    assert sum(row[0] for row in rows(1000)) == 2000
    assert rows(0) == []


def test_losses_that_are_not_finite_give_no_rows():
    source = perplexity([[0, 1]], uniform(2))
    broken = perplexity([[0, 1]], lambda ids: np.full((len(ids), 2), math.nan), source)

    assert compared(source, broken)["perplexity_texts"] == []
