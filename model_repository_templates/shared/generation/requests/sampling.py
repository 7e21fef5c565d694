"""The inputs with which a request controls how tokens are chosen, the same for every engine.

A model declares those that its engine obeys in config.pbtxt, and Triton refuses every other one by its name. What an
engine would ignore without a word is not declared: docs/openai.md lists them by engine kind.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from generation.bounded_json import Bounds, BoundsError, read
from generation.grammar.ebnf import Dialect
from generation.requests.question import RefusedError
from generation.runtime import Controls
from generation.workers.preparers import PREPARERS
from generation.workers.worker import LimitError, WorkError

MAX_ALTERNATIVES = 20
"""The most tokens that are reported beside each one: the limit of OpenAI's API, and of vLLM's max_logprobs."""
MAX_BAD_WORDS = 64
KEPT_GRAMMARS = 64
"""Grammars that are remembered, each up to 100 KiB."""
PENALTY = 2.0
"""OpenAI's API takes presence and frequency penalties from -2 to 2."""
REPETITION = 100.0
"""The strongest repetition penalty, in both directions: engines divide logits by it in 32 bits."""

BIAS = 100.0
"""OpenAI's API takes biases from -100 to 100."""
MAX_BIASED = 1024
"""Tokens with a bias. Each engine has a row of them for every request, which takes time at every token."""

MOST_DIGITS = 10
"""The id of a token has no more digits than this."""

BAD_WORDS, JSON_SCHEMA, LOGIT_BIAS = "bad_words", "json_schema", "logit_bias"
BIAS_BOUNDS = Bounds(chars=64 * MAX_BIASED)
VALUES = (
    *("top_p", "top_k", "min_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("min_p", "ignore_eos", "logprobs", "top_logprobs", "prompt_logprobs"),
)
"""Inputs that are a number or a switch."""
RANGES: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "top_p": (lambda value: 0 < value <= 1, "above 0 and at most 1"),
    "top_k": (lambda value: value >= 0, "at least 0"),
    "min_p": (lambda value: 0 <= value <= 1, "from 0 to 1"),
    "min_tokens": (lambda value: value >= 0, "at least 0"),
    "presence_penalty": (lambda value: -PENALTY <= value <= PENALTY, "from -2 to 2"),
    "frequency_penalty": (lambda value: -PENALTY <= value <= PENALTY, "from -2 to 2"),
    "repetition_penalty": (lambda value: 1 / REPETITION <= value <= REPETITION, "from 0.01 to 100"),
    **{
        name: (lambda value: 0 <= value <= MAX_ALTERNATIVES, f"from 0 to {MAX_ALTERNATIVES}")
        for name in ("top_logprobs", "prompt_logprobs")
    },
}


def read_controls(
    values: Mapping[str, float | None],
    bad_words: Sequence[str] = (),
    json_schema: Sequence[str] = (),
    dialect: Dialect = Dialect.RANGES,
    logit_bias: Sequence[str] = (),
) -> Controls:
    """The controls of a request.

    Args:
        values: numbers and switches by the name of their input; None where it was not given.
        bad_words: texts of that input.
        json_schema: none or one.
        dialect: the EBNF that the engine reads.
        logit_bias: none or one JSON object, of numbers by the ids of tokens.

    Raises:
        RefusedError: a value is out of its range, a bias is none, or the JSON Schema cannot be enforced.
    """
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    for name, (accepts, expected) in RANGES.items():
        if name in given and not accepts(given[name]):
            raise RefusedError(f"{name} is {given[name]:g}; expected a number {expected}. Change it or leave it out.")
    if "" in bad_words or len(bad_words) > MAX_BAD_WORDS:
        raise RefusedError(
            f"bad_words has {len(bad_words)} texts; expected at most {MAX_BAD_WORDS}, none of them empty."
        )
    alternatives, reports = given.pop("top_logprobs", 0), bool(given.pop("logprobs", False))
    if alternatives and not reports:
        raise RefusedError("top_logprobs needs logprobs. Set logprobs to true.")
    grammar = _grammar(json_schema[0], dialect) if json_schema else ""
    return Controls(
        **given,
        bad_words=tuple(bad_words),
        logprobs=alternatives if reports else None,
        grammar=grammar,
        logit_bias=_biases(logit_bias[0]) if logit_bias else (),
    )


def _biases(text: str) -> tuple[tuple[int, float], ...]:
    try:
        found = read(text, BIAS_BOUNDS)
    except BoundsError as error:
        raise RefusedError(f'{LOGIT_BIAS} {error}. Send an object of numbers, e.g. {{"17": -100}}.') from error
    if not isinstance(found, dict) or len(found) > MAX_BIASED:
        raise RefusedError(f"{LOGIT_BIAS} is {text[:64]}; expected an object of at most {MAX_BIASED} tokens.")
    return tuple((_token(name), _bias(name, value)) for name, value in found.items())


def _token(name: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) <= MOST_DIGITS):
        raise RefusedError(
            f"{LOGIT_BIAS} has {name[:64]!r}; expected the id of a token. Use the model's own tokenizer."
        )
    return int(name)


def _bias(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -BIAS <= value <= BIAS:
        raise RefusedError(
            f"{LOGIT_BIAS} is {str(value)[:64]} for {name}; expected a number from -100 to 100. Change it."
        )
    return float(value)


@lru_cache(maxsize=KEPT_GRAMMARS)
def _grammar(text: str, dialect: Dialect) -> str:
    """The grammar of a schema, which another process translates: meanwhile other requests go on."""
    try:
        verdict = PREPARERS.ask({"schema": text, "dialect": dialect.value})
    except LimitError as error:
        raise RefusedError(f"{JSON_SCHEMA}: its translation {error}. Make it smaller, or simpler.") from error
    except WorkError as error:
        raise RefusedError(f"{JSON_SCHEMA}: its translation failed: {error}. Make it simpler.") from error
    if "refusal" in verdict:
        raise RefusedError(f"{JSON_SCHEMA}: {verdict['refusal']}")
    return str(verdict["grammar"])
