"""How much text one token may stand for, where a tokenizer lets that be said: few tokens need few bytes.

Some tokenizers drop parts of a text, or make one token of any number of unknown characters. Nothing follows from the
bytes of a text for them. Names are those of tokenizer.json as the tokenizers library (0.22) writes it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

NFC_SHRINKS = 3
"""The most bytes that NFC makes one of: three letters of Hangul, of 3 bytes each, become one."""
UNKNOWN_BYTES = 4
"""The longest character, which may be unknown."""
KEEPING = ("ByteLevel", "Metaspace", "Digits")
"""Pre-tokenizers that drop nothing."""
BYTES = range(256)

Document = Mapping[str, Any]


def longest_token(tokenizer: Document) -> int | None:
    """Bytes of the longest text that one token may stand for; None where that may be any text.

    Args:
        tokenizer: tokenizer.json; empty where there is none.
    """
    model = tokenizer.get("model") or {}
    normalizers = [*_steps(tokenizer.get("normalizer"), "normalizers")]
    splits = [*_steps(tokenizer.get("pre_tokenizer"), "pretokenizers")]
    added = tokenizer.get("added_tokens") or []
    words = {*_vocabulary(model), *(each["content"] for each in added)}
    if (
        tokenizer.get("truncation")
        or any(each.get("lstrip") or each.get("rstrip") for each in added)
        or not all(map(_keeps_bytes, normalizers))
        or not all(map(_drops_nothing, splits))
        or not _knows_all(model, words, [*normalizers, *splits])
    ):
        return None
    shrinks = NFC_SHRINKS if any(each["type"] == "NFC" for each in normalizers) else 1
    return shrinks * max(UNKNOWN_BYTES, *(len(word.encode()) for word in words))


def _steps(part: Document | None, inner: str) -> Iterator[Document]:
    """The steps of a part of tokenizer.json, which may be a sequence of sequences."""
    if part is None:
        return
    if part["type"] == "Sequence":
        for each in part[inner]:
            yield from _steps(each, inner)
    else:
        yield part


def _vocabulary(model: Document) -> Iterator[str]:
    """Tokens of a model: the keys of an object, or the first of each pair in a list."""
    for entry in model.get("vocab") or ():
        yield entry if isinstance(entry, str) else entry[0]


def _keeps_bytes(normalizer: Document) -> bool:
    if normalizer["type"] == "Replace":
        replaced = normalizer["pattern"].get("String")
        return replaced is not None and len(normalizer["content"].encode()) >= len(replaced.encode())
    return normalizer["type"] in {"NFC", "Prepend", "ByteLevel"}


def _drops_nothing(split: Document) -> bool:
    return split["type"] in KEEPING or (split["type"] == "Split" and split["behavior"] != "Removed")


def _knows_all(model: Document, words: set[str], steps: list[Document]) -> bool:
    """Whether each unknown character becomes a token, or none is unknown."""
    kind = model.get("type")
    if kind in {"BPE", "Unigram"} and model.get("byte_fallback"):
        return all(f"<0x{byte:02X}>" in words for byte in BYTES)
    if kind == "BPE" and any(each["type"] == "ByteLevel" for each in steps):
        return all(letter in words for letter in _byte_letters())
    return kind == "BPE" and model.get("unk_token") is not None and not model.get("fuse_unk")


def _byte_letters() -> Iterator[str]:
    """The letters that stand for bytes (GPT-2, bytes_to_unicode): printable ones for themselves, others from 256 on."""
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = [byte for byte in BYTES if byte not in shown]
    yield from map(chr, sorted(shown))
    yield from (chr(256 + number) for number in range(len(hidden)))
