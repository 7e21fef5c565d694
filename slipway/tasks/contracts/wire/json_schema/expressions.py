"""Writes expressions of a grammar: choices, names, and what stands in brackets."""

from collections.abc import Sequence

from ..grammar.ebnf import BLANK, json_text, times

SEPARATOR = f'{BLANK} "," {BLANK}'


def either(options: Sequence[str]) -> str:
    """One of some expressions."""
    distinct = list(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 else "(" + " | ".join(distinct) + ")"


def quoted(name: str) -> str:
    """A name as a JSON string."""
    return f'"{json_text(name)}"'


def bracketed(
    opening: str,
    known: Sequence[str],
    closing: str,
    *,
    least: int | None = None,
    others: str | None = None,
    others_most: int | None = None,
) -> str:
    """An array or object: parts in their order, of which those from `least` on may be missing, and then others."""
    least = len(known) if least is None else least
    inner = ""
    if others is not None and others_most != 0:
        more = max(0, least - len(known))
        if known:
            inner = times(f"({SEPARATOR} {others})", more, others_most)
        else:
            left = None if others_most is None else others_most - 1
            inner = f"{others} {times(f'({SEPARATOR} {others})', max(0, more - 1), left)}"
            inner = f"({inner} {BLANK})" if more else f"({inner} {BLANK})?"
            return f'"{opening}" {BLANK} {inner} "{closing}"'
    for number in range(len(known) - 1, -1, -1):
        part = f"{known[number]} {inner}" if number == 0 else f"{SEPARATOR} {known[number]} {inner}"
        if number == 0:
            part += f" {BLANK}"
        inner = part if number < least else f"({part})?"
    return f'"{opening}" {BLANK} {inner} "{closing}"'
