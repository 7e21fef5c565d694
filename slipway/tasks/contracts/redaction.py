"""Bounds, redaction and control characters of text that people read. Pure."""

import re

MESSAGE_CHARS = 4000
"""The longest error message, a little below what Kubernetes keeps of a termination message (4096 bytes)."""
TAIL_CHARS = 800
"""Length of the end that a cut message keeps, because the remedy is there."""

TOKEN = re.compile(
    r"hf_[A-Za-z0-9]{8,}"  # the Hub
    r"|(?:AKIA|ASIA)[A-Z0-9]{8,}"  # AWS
    r"|eyJ[\w-]{8,}(?:\.[\w-]+)*"  # JSON web tokens
    r"|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}"  # GitHub
    r"|nvapi-[\w-]{8,}"  # NVIDIA NGC
    r"|\bsk-[A-Za-z0-9]{20,}"  # providers of hosted models
    r"|(?<=://)[^/\s@]+@"  # user and password of an address
)
"""Tokens, recognised by their prefixes."""

FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z_.-]*[0-9]{0,2}")
"""A plausible name of a field. Tokens have digits between their letters."""
FIELD_NAME_CHARS = 40

PICTURES = 0x2400
DELETE = 0x7F
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def bounded(text: str, limit: int = MESSAGE_CHARS) -> str:
    """Return `text` if it is at most `limit` characters long, else its beginning and its end.

    Characters that UTF-8 cannot express, as in a file name of another encoding, are escaped: databases refuse them.
    """
    text = text[: limit // 2] + " … " + text[-limit // 2 :] if len(text) > 16 * limit else text
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    tail = min(TAIL_CHARS, limit // 4)
    return f"{text[: limit - tail - 3]} … {text[-tail:]}"


def redacted(text: str) -> str:
    """Return `text` with every token that has a known prefix replaced."""
    return TOKEN.sub("(not shown: it may be a secret)", text)


def excerpt(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, without tokens: once cut, a token is not recognised."""
    return bounded(redacted(text), limit)


def field_name(key: object) -> str:
    """Return a mapping's key if it looks like the name of a field; a token pasted as a key is not shown."""
    text = str(key)[: FIELD_NAME_CHARS + 1]
    named = len(text) <= FIELD_NAME_CHARS and FIELD_NAME.fullmatch(text) and not TOKEN.search(text)
    return text if named else "(a key not shown: it may be a secret)"


def _table() -> dict[int, str]:
    """What stands for each character that a terminal obeys: its picture where Unicode has one."""
    kept = {ord("\n"), ord("\t")}
    table = {code: chr(PICTURES + code) for code in range(0x20) if code not in kept} | {DELETE: "\N{SYMBOL FOR DELETE}"}
    c1 = range(0x80, 0xA0)
    bidi = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))  # Unicode, UAX #9, section 2
    surrogates = range(0xD800, 0xE000)
    return table | dict.fromkeys((*c1, *bidi, *surrogates), UNKNOWN)


TABLE = _table()


def printable(text: str) -> str:
    """The text with a visible character in place of each that a terminal or a browser would obey. Its length stays."""
    return text.translate(TABLE)
