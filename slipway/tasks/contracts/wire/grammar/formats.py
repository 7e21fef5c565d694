"""The formats of texts that are enforced, as patterns. Pure.

Each is within what its standard and the checkers of package jsonschema 4.26 take, and sometimes narrower: a name of a
host has at most six parts of 50 characters, and a URI has a scheme and an authority or a path.
"""

import functools
from collections.abc import Mapping

from .patterns import read_pattern
from .regular import Regex

_YEAR = r"(?:[1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])"
_LEAP = r"(?:\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|"
    rf"02-(?:0[1-9]|1\d|2[0-8]))|{_LEAP}-02-29)"
)
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME = rf"{_CLOCK}:[0-5]\d(?:\.\d{{1,9}})?(?:Z|[+-]{_CLOCK})"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]\d|\d)"
_IPV4 = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_GROUP = r"[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    [
        rf"(?:{_GROUP}:){{7}}{_GROUP}",
        *(rf"(?:{_GROUP}:){{{left}}}(?::{_GROUP}){{1,{7 - left}}}" for left in range(1, 7)),
        rf":(?::{_GROUP}){{1,7}}",
        rf"(?:{_GROUP}:){{1,7}}:",
        "::",
    ]
)
_LABEL = r"[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,14}){0,2}"
_TOP = r"[A-Za-z]{2,20}"
_HOST = rf"(?:{_LABEL}\.){{0,5}}{_TOP}"
_DOMAIN = rf"(?:{_LABEL}\.){{1,5}}{_TOP}"
_LOCAL = r"[A-Za-z0-9_+-]{1,20}(?:[.][A-Za-z0-9_+-]{1,20}){0,2}"
_ENCODED = r"%[0-9A-Fa-f]{2}"
_PATH = rf"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_ENCODED})*)*"
_QUERY = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|{_ENCODED})*"
_TAIL = rf"{_PATH}(?:\?{_QUERY})?(?:#{_QUERY})?"
_URI = rf"(?:[a-z][a-z0-9+.-]{{1,15}}://{_HOST}(?::[1-9]\d{{0,3}})?{_TAIL}|(?:mailto:{_LOCAL}@{_DOMAIN}|urn:[a-z0-9]{{2,16}}:[A-Za-z0-9._~:-]+))"
_CLOCK_PART = r"(?:\d{1,6}H(?:\d{1,6}M(?:\d{1,6}S)?)?|\d{1,6}M(?:\d{1,6}S)?|\d{1,6}S)"
_DURATION = "|".join(
    [
        r"P\d{1,6}W",
        rf"P(?:\d{{1,6}}Y(?:\d{{1,6}}M(?:\d{{1,6}}D)?)?|\d{{1,6}}M(?:\d{{1,6}}D)?|\d{{1,6}}D)(?:T{_CLOCK_PART})?",
        rf"PT{_CLOCK_PART}",
    ]
)
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_NETWORK4, _NETWORK6 = rf"{_IPV4}(?:/32)?", rf"(?:{_IPV6})(?:/128)?"
"""Those of one host: an address with bits beyond its prefix is no network."""
_CIDR4, _CIDR6 = rf"{_IPV4}/(?:3[0-2]|[12]\d|\d)", rf"(?:{_IPV6})/(?:12[0-8]|1[01]\d|[1-9]?\d)"
_POINTER = r"(?:/[A-Za-z0-9._-]*)*"
_BASE64 = r"(?:[0-9a-zA-Z+/]{4})*(?:[0-9a-zA-Z+/][AQgw]==|[0-9a-zA-Z+/]{2}[AEIMQUYcgkosw048]=)?"

PATTERNS: Mapping[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}",
    "duration": _DURATION,
    "email": rf"{_LOCAL}@{_DOMAIN}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uuid": _UUID,
    "idn-email": rf"{_LOCAL}@{_DOMAIN}",
    "idn-hostname": _HOST,
    "iri": _URI,
    "iri-reference": _URI,
    "uri-reference": _URI,
    "uri-template": _URI,
    "json-pointer": _POINTER,
    "base64": _BASE64,
    "base64url": r"(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?",
    "cidrv4": _CIDR4,
    "cidrv6": _CIDR6,
    "e164": r"\+[1-9]\d{6,14}",
    "cuid": r"[cC][0-9a-z]{8,32}",
    "cuid2": r"[0-9a-z]{1,32}",
    "ulid": r"[0-7][0-9A-HJKMNP-TV-Z]{25}",
    "xid": r"[0-9a-v]{20}",
    "ksuid": r"[A-Za-z0-9]{27}",
    "nanoid": r"[a-zA-Z0-9_-]{21}",
    **{
        f"uuid{n}": rf"[0-9a-f]{{8}}-[0-9a-f]{{4}}-{n}[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}"
        for n in (1, 3, 4, 5, 6, 7, 8)
    },
    "ipvanyaddress": rf"{_IPV4}|{_IPV6}",
    "ipv4network": _NETWORK4,
    "ipv6network": _NETWORK6,
    "ipvanynetwork": rf"{_NETWORK4}|{_NETWORK6}",
    "ipv4interface": _CIDR4,
    "ipv6interface": _CIDR6,
    "ipvanyinterface": rf"{_CIDR4}|{_CIDR6}",
    "decimal": r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,10})?",
}
"""Those of JSON Schema first, then what zod 4 names (packages/zod/src/v4/core/regexes.ts, 01c8a947), and what pydantic
2.14 and msgspec 0.21 name."""
ANY_TEXT = frozenset(
    {"password", "binary", "path", "file-path", "directory-path"}
    | {"starts_with", "ends_with", "includes", "lowercase", "uppercase"}
)
"""Formats of OpenAPI and pydantic that every text has, and zod's names for the pattern that it writes beside them."""
NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "float": (None, None),
    "double": (None, None),
}
"""Formats of OpenAPI's numbers, and the bounds that they stand for."""


@functools.cache
def format_language(name: str) -> Regex:
    """The texts of a format of PATTERNS."""
    return read_pattern(f"^(?:{PATTERNS[name]})$")


@functools.cache
def format_languages() -> frozenset[Regex]:
    """All of them: each can be written as it stands, which a pattern of a stranger cannot."""
    return frozenset(map(format_language, PATTERNS))
