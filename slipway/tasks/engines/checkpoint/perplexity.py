"""Perplexity of a causal language model over texts, and its divergence from another, whatever computes their logits."""

import itertools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

Logits = Callable[[list[int]], Any]
"""Turns the token ids of one sequence into an array of logits [tokens, vocabulary]."""


ROWS_AT_ONCE = 128
"""Tokens whose logits are widened to 64 bit together: 130 MB with a vocabulary of 128,000."""
MAX_ROWS = 256
"""Rows of `perplexity_texts`: they are part of a manifest, which is read often."""


TOP_TOKENS = 64
"""Tokens of each position whose chances the divergence compares one by one; the rest of the vocabulary is one more.
So it is at most the divergence over the whole vocabulary, and needs 768 bytes for a position instead of a megabyte."""
SMALLEST_CHANCE = 1e-12


@dataclass(frozen=True)
class ScoredText:
    """One text: its predicted tokens, and sums over them in nats."""

    tokens: int
    loss: float
    divergence: float | None
    """Kullback-Leibler divergence from the source's next-token chances; None for the source itself."""
    top: tuple[Any, Any] | None
    """The source's likeliest tokens and the logarithms of their chances, each [tokens, TOP_TOKENS]; None for others."""


@dataclass(frozen=True)
class Perplexity:
    """`value` is None when it is not finite, or when no token was predicted."""

    value: float | None
    tokens: int
    """Predicted tokens behind the value."""
    texts: tuple[ScoredText, ...] = ()
    """The texts with a predicted token."""


def perplexity(sequences: Sequence[list[int]], logits: Logits, source: Perplexity | None = None) -> Perplexity:
    """Exponential of the mean negative log-likelihood per predicted token.

    Every token but a sequence's first is predicted once, from all tokens before it in its sequence and from no other
    sequence. The mean is over all tokens of all sequences, so that a long text weighs more than a short one. The
    definition is that of Hugging Face Transformers 5.5 ("Perplexity of fixed-length models"), without a sliding
    window: a sequence has to fit into the model's context.

    Args:
        sequences: token ids of each text.
        logits: of the model.
        source: what the unquantized model scored on the same sequences, to measure the divergence from it; None: this
            is that model.
    """
    predicted = [ids for ids in sequences if len(ids) > 1]
    tops = [text.top for text in source.texts] if source else [None] * len(predicted)
    texts = tuple(_scored(logits(ids), ids, top) for ids, top in zip(predicted, tops, strict=True))
    tokens = sum(text.tokens for text in texts)
    return Perplexity(_finite_exp(sum(text.loss for text in texts) / tokens) if tokens else None, tokens, texts)


def compared(source: Perplexity, quantized: Perplexity) -> dict[str, Any]:
    """A stage's metrics: `perplexity`, `source_perplexity`, `perplexity_tokens`, `warnings` where not finite.

    `perplexity_texts` has a row for each text, or for neighbouring ones together where there are very many: tokens, and
    sums in nats of the source's loss, the quantized model's loss and its divergence. It is empty if one is not finite.
    """
    warnings = [
        f"perplexity of the {what} model is not finite over {measured.tokens} tokens"
        for what, measured in (("source", source), ("quantized", quantized))
        if measured.value is None
    ]
    for warning in warnings:
        log.warning(warning)
    return {
        "perplexity": quantized.value,
        "source_perplexity": source.value,
        "perplexity_tokens": quantized.tokens,
        "perplexity_texts": _rows(source, quantized),
        "warnings": warnings,
    }


def _rows(source: Perplexity, quantized: Perplexity) -> list[list[float]]:
    pairs = list(zip(source.texts, quantized.texts, strict=True))
    rows = [[after.tokens, before.loss, after.loss, after.divergence or 0.0] for before, after in pairs]
    if not all(math.isfinite(number) for row in rows for number in row):
        return []
    count = min(len(rows), MAX_ROWS)
    edges = [len(rows) * number // count for number in range(count + 1)] if count else []
    return [[sum(column) for column in zip(*rows[a:b], strict=True)] for a, b in itertools.pairwise(edges)]


def _scored(logits: Any, ids: list[int], source_top: tuple[Any, Any] | None) -> ScoredText:
    import numpy as np

    loss, divergence, tops = 0.0, 0.0, []
    for first in range(0, len(ids) - 1, ROWS_AT_ONCE):
        targets = np.asarray(ids[first + 1 : first + 1 + ROWS_AT_ONCE])
        scores = np.asarray(logits[first : first + len(targets)], dtype=np.float64)
        highest = scores.max(axis=-1)
        with np.errstate(invalid="ignore"):  # what is not finite shows in the sum
            log_norm = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=-1))
            log_chances = scores - log_norm[:, None]
        loss -= float(log_chances[np.arange(len(targets)), targets].sum())
        if source_top is None:
            count = min(TOP_TOKENS, scores.shape[-1])
            likeliest = np.argpartition(-log_chances, count - 1, axis=-1)[:, :count].astype(np.int32)
            tops.append((likeliest, np.take_along_axis(log_chances, likeliest, axis=-1)))
        else:
            likeliest, expected = (each[first : first + len(targets)] for each in source_top)
            divergence += _divergence(expected, np.take_along_axis(log_chances, likeliest, axis=-1))
    if source_top is not None:
        return ScoredText(len(ids) - 1, loss, divergence, None)
    top = tuple(np.concatenate(each) for each in zip(*tops, strict=True))
    return ScoredText(len(ids) - 1, loss, None, (top[0], top[1]))


def _divergence(source: Any, other: Any) -> float:
    """Sum over positions, from logarithms of chances [tokens, TOP_TOKENS]; what is left of each is one more token."""
    import numpy as np

    with np.errstate(invalid="ignore"):
        of_top = (np.exp(source) * (source - other)).sum(axis=-1)
        left, left_there = (np.clip(1 - np.exp(each).sum(axis=-1), SMALLEST_CHANCE, 1) for each in (source, other))
        return float((of_top + left * np.log(left / left_there)).sum())


def _finite_exp(mean: float) -> float | None:
    try:
        value = math.exp(mean)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None
