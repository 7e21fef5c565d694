"""Perplexity of a causal language model over texts, whatever computes its logits."""

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


@dataclass(frozen=True)
class Perplexity:
    """`value` is None when it is not finite, or when no token was predicted."""

    value: float | None
    tokens: int
    """Predicted tokens behind the value."""


def perplexity(sequences: Sequence[list[int]], logits: Logits) -> Perplexity:
    """Exponential of the mean negative log-likelihood per predicted token.

    Every token but a sequence's first is predicted once, from all tokens before it in its sequence and from no other
    sequence. The mean is over all tokens of all sequences, so that a long text weighs more than a short one. The
    definition is that of Hugging Face Transformers 5.5 ("Perplexity of fixed-length models"), without a sliding
    window: a sequence has to fit into the model's context.
    """
    total, tokens = 0.0, 0
    for ids in sequences:
        if len(ids) > 1:
            total += _negative_log_likelihood(logits(ids), ids)
            tokens += len(ids) - 1
    return Perplexity(_finite_exp(total / tokens) if tokens else None, tokens)


def compared(source: Perplexity, quantized: Perplexity) -> dict[str, Any]:
    """A stage's metrics: `perplexity`, `source_perplexity`, `perplexity_tokens`, `warnings` where not finite."""
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
        "warnings": warnings,
    }


def _negative_log_likelihood(logits: Any, ids: list[int]) -> float:
    import numpy as np

    total = 0.0
    for first in range(0, len(ids) - 1, ROWS_AT_ONCE):
        targets = np.asarray(ids[first + 1 : first + 1 + ROWS_AT_ONCE])
        scores = np.asarray(logits[first : first + len(targets)], dtype=np.float64)
        highest = scores.max(axis=-1)
        with np.errstate(invalid="ignore"):  # what is not finite shows in the sum
            log_norm = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=-1))
        total += float((log_norm - scores[np.arange(len(targets)), targets]).sum())
    return total


def _finite_exp(mean: float) -> float | None:
    try:
        value = math.exp(mean)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None
