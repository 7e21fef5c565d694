"""Log-probabilities of tokens as OpenAI's API for chats writes them. Computes only.

https://platform.openai.com/docs/api-reference/chat/object, choices[].logprobs.content.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from generation.answers.text_stream import UNFINISHED
from generation.runtime import Tokenizer, TokenLogprob

LEAST = -9999.0
"""Stands for a probability of zero, as in vLLM and OpenAI's API: JSON has no infinity, and no NaN."""


def logprobs_document(entries: Sequence[TokenLogprob], tokenizer: Tokenizer) -> str:
    """The JSON list of tokens with their text, and of the alternatives of each."""
    ids = sorted({token for each in entries for token in (each.token, *(token for token, _ in each.alternatives))})
    names = dict(zip(ids, _texts([[each] for each in ids], tokenizer), strict=True))
    known = _bytes([each.token for each in entries], names, tokenizer)
    document = [
        {
            **_entry(names[each.token], each.logprob),
            "bytes": of_token,
            "top_logprobs": [_entry(names[token], logprob) for token, logprob in each.alternatives],
        }
        for each, of_token in zip(entries, known, strict=True)
    ]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _entry(text: str, logprob: float | None) -> dict[str, Any]:
    """A token that is a part of a character has no text of its own, so its bytes are not known."""
    return {
        "token": text,
        "logprob": None
        if logprob is None
        else max(LEAST, logprob),  # in this order a value that is not a number becomes the least as well
        "bytes": None if UNFINISHED in text else list(text.encode()),
    }


def _bytes(tokens: Sequence[int], names: Mapping[int, str], tokenizer: Tokenizer) -> list[list[int] | None]:
    """Bytes of tokens one behind another: those of a character that several make up stand with the last of them."""
    found: list[list[int] | None] = []
    for is_part, run in itertools.groupby(tokens, key=lambda token: UNFINISHED in names[token]):
        together = list(run)
        if not is_part:
            found += [list(names[token].encode()) for token in together]
            continue
        (text,) = _texts([together], tokenizer)
        is_whole = UNFINISHED not in text
        found += [[] if is_whole else None] * (len(together) - 1) + [list(text.encode()) if is_whole else None]
    return found


def _texts(sequences: Sequence[Sequence[int]], tokenizer: Tokenizer) -> Sequence[str]:
    """Text of tokens behind another one: at the beginning of a text, a decoder may leave a token's space out."""
    anchor = sequences[0][0]
    alone, *texts = tokenizer.decode([[anchor], *([anchor, *each] for each in sequences)])
    return [text[len(alone) :] for text in texts]


def token_logprobs(
    tokens: Sequence[int], reported: Sequence[Mapping[int, Any]] | None, alternatives: int
) -> list[TokenLogprob]:
    """Log-probabilities of tokens, as vLLM and TensorRT-LLM report them.

    Args:
        tokens: those that are reported here.
        reported: for each position, objects with `logprob` by token: the likeliest ones and, where it is not one of
            them, the one that was chosen besides.
        alternatives: how many of the likeliest are wanted.
    """
    entries = []
    for token, found in zip(tokens, reported or (), strict=False):
        likeliest = sorted(found, key=lambda each: found[each].logprob, reverse=True)[:alternatives]
        entries.append(
            TokenLogprob(token, found[token].logprob, tuple((each, found[each].logprob) for each in likeliest))
        )
    return entries
