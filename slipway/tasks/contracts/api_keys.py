"""API keys of clients, and the file in which a Secret holds their hashes. Pure.

One key a line: name, SHA-256 of the key in hex, when it was created, and when it expires or `never`. Times are UTC, so
they are in order as text; the front compares them so (slipway/tasks/serving/rendered/front_keys.py).
"""

import hashlib
import re
import secrets
from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

PREFIX, RANDOM_BYTES = "sk-", 32
"""A key is the prefix and 256 random bits, so a plain hash is enough: nobody can try all keys."""
MOST_KEYS = 1000
"""Keys of one site. The front compares a request's key with each of them."""
NEVER = "never"
OWN_KEY_VARIABLE = "SLIPWAY_API_KEY"
"""Environment variable with the key of whoever sends requests: steps and the command. Also its name in the Secret."""
KEYS_VOLUME = "keys"
"""Volume with the Secret of hashes, in a pod whose front asks for keys (k8s_manifests/serving)."""
SUBJECT_PREFIX = "jwt:"
"""What the name of a client begins with that has a token and no key; the token's subject follows."""
OTHER_SUBJECTS = f"{SUBJECT_PREFIX}*"
"""What metrics call all such clients without a quota of their own."""
MOST_LETTERS, DIGEST_DIGITS = 128, 16
"""Letters of a subject that a name shows, and hexadecimal digits of its SHA-256 where they are not all of it."""
CLIENT_HEADER = "x-slipway-client"
"""Header by which OpenAI's API learns the name of the key from the front, which removes a client's own."""
NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
_TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
_LINE = re.compile(rf"({NAME.pattern}) ([0-9a-f]{{64}}) ({_TIME}) ({_TIME}|{NEVER})")


@dataclass(frozen=True)
class ApiKey:
    """What is stored of a key. Several keys may have one name while one replaces the other."""

    name: str
    sha256: str
    created: str
    expires: str = NEVER

    @property
    def line(self) -> str:
        """Its line of the file."""
        return f"{self.name} {self.sha256} {self.created} {self.expires}\n"

    @property
    def id(self) -> str:
        """What tells it from others of its name."""
        return self.sha256[:8]

    def is_expired(self, now: datetime) -> bool:
        """Whether the front refuses it."""
        return self.expires != NEVER and self.expires <= time_text(now)


def label_of(client: str, quotas: Container[str]) -> str:
    """What metrics call a client, by the names that have quotas: of subjects an issuer may have any number."""
    return OTHER_SUBJECTS if client.startswith(SUBJECT_PREFIX) and client not in quotas else client


def subject_name(subject: str) -> str:
    """The name of a client that has a token with this subject; the front makes the same one.

    A subject of few and small letters is shown as it is. Otherwise a digest follows what is left of it, after a letter
    that no subject keeps: so no two subjects have one name, and share a quota.
    """
    shown = re.sub(rb"[^a-z0-9._-]", b"_", subject.encode().lower())[:MOST_LETTERS].decode()
    digest = "" if shown == subject else f"~{sha256_of_key(subject)[:DIGEST_DIGITS]}"
    return f"{SUBJECT_PREFIX}{shown}{digest}"


def new_secret() -> str:
    """A new key, which only its client holds."""
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def sha256_of_key(secret: str) -> str:
    """What is stored of a key."""
    return hashlib.sha256(secret.encode()).hexdigest()


def time_text(moment: datetime) -> str:
    """A moment as the file has it."""
    return moment.astimezone(UTC).strftime(_TIME_FORM)


def read_keys(text: str) -> list[ApiKey]:
    """The keys of a file, whose lines end with a line feed. Other lines are skipped, as the front does."""
    lines = [_LINE.fullmatch(line) for line in text.split("\n")]
    return [ApiKey(*match.groups()) for match in lines if match]


def file_of(keys: Iterable[ApiKey]) -> str:
    """The text of a file."""
    return "".join(key.line for key in keys)
