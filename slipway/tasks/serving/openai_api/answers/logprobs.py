"""Log-probabilities of an answer's tokens, from a model's response to the forms of OpenAI's two routes. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

LEAST = -9999.0
"""Stands for a probability of zero: JSON has no infinity."""


def read_logprobs(text: str | None) -> tuple[Mapping[str, Any], ...]:
    """The tokens of a response in the form of OpenAI's chats.

    Slipway's models write that form. Triton's vLLM backend writes a mapping from token ids for each position, the
    chosen token first (vllm_backend 8de0c14, src/utils/request.py).
    """
    found = json.loads(text) if text else None
    return tuple(each if "token" in each else _of_vllm(each) for each in found or ())


def completion_logprobs(entries: Sequence[Mapping[str, Any]], chars: int) -> dict[str, Any]:
    """The form of /v1/completions, for tokens behind `chars` characters of text."""
    offsets, at = [], chars
    for each in entries:
        offsets.append(at)
        at += len(text_of([each]))
    likeliest = [{top["token"]: top["logprob"] for top in each["top_logprobs"]} or None for each in entries]
    return {
        "tokens": [each["token"] for each in entries],
        "token_logprobs": [each["logprob"] for each in entries],
        "top_logprobs": likeliest if any(likeliest) else None,
        "text_offset": offsets,
    }


def text_of(entries: Sequence[Mapping[str, Any]]) -> str:
    """The text of tokens one behind another: a character may be made up of several, which have its bytes together."""
    known = (each["token"].encode() if each["bytes"] is None else bytes(each["bytes"]) for each in entries)
    return b"".join(known).decode(errors="replace")


def _of_vllm(position: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One position. vLLM puts the chosen token first, and counts ranks from 1."""
    chosen, *others = position.values()
    tops = sorted((chosen, *others), key=lambda each: each["rank"])[: len(others) or None]
    return {**_entry(chosen), "top_logprobs": [_entry(each) for each in tops] if others else []}


def _entry(token: Mapping[str, Any]) -> dict[str, Any]:
    text = token["decoded_token"] or ""
    return {
        "token": text,
        "logprob": max(LEAST, float(token["logprob"])),  # in this order NaN becomes the least as well
        "bytes": None if "\ufffd" in text else list(text.encode()),
    }
