"""Who may use the models of a site: API keys, whose hashes are in a Secret."""

import re
from typing import Annotated

from pydantic import Field, field_validator

from slipway.tasks.contracts.api_keys import NAME, OWN_KEY_VARIABLE, SUBJECT_PREFIX
from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.kubernetes_text import ObjectName

KEYS_FILE = "keys"
"""Key of the Secret with the hashes, one API key a line: slipway/tasks/contracts/api_keys.py."""


EVERY_OTHER = "*"
"""Name of the quota of all keys that have none of their own."""
QuotaName = Annotated[str, Field(pattern=rf"^(\*|{NAME.pattern}|{SUBJECT_PREFIX}[ -~]{{1,256}})$")]
"""After the prefix, a token's subject as the token has it."""
MOST_QUOTAS = 200
"""The front has all of them in one argument."""
MOST_PORT = 65_535
Claim = Annotated[str, Field(max_length=256, pattern=r"^[!-#%-~]+$")]
"""Without a dollar, which Kubernetes would expand in the front's command."""


class Quota(UserDocument):
    """What the keys of one name may use together, of each pod; absent: as much as they like."""

    requests_per_minute: int | None = Field(
        default=None, ge=1, le=1_000_000, description="requests on every route, as many of them at once"
    )
    tokens_per_minute: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="tokens of prompts and answers of OpenAI's API, counted when an answer ends",
    )


class TokenIssuer(UserDocument):
    """Who issues tokens (JSON Web Tokens, as of OpenID Connect) that are as good as a key."""

    issuer: Claim = Field(description="claim iss, such as https://id.example")
    audiences: tuple[Claim, ...] = Field(
        min_length=1, max_length=16, description="claim aud: a token names one of them"
    )
    jwks_uri: str = Field(
        max_length=512,
        pattern=r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[A-Za-z0-9/._~-]*$",
        description="where the front reads the issuer's keys, every five minutes",
    )

    @field_validator("jwks_uri")
    @classmethod
    def _has_a_port(cls, uri: str) -> str:
        port = re.search(r":([0-9]+)/", uri)
        if port and not 0 < int(port[1]) <= MOST_PORT:
            raise ValueError(f"the port is {port[1]}; expected 1 to {MOST_PORT}")
        return uri


class Authentication(UserDocument):
    """API keys that every request to /v1, /v2 and gRPC needs."""

    keys_secret: ObjectName = Field(
        default="slipway-api-keys",
        description="Secret of the serving namespace with the hashes of all keys, which `slipway key` writes",
    )
    own_key_secret: ObjectName = Field(
        default="slipway-own-key",
        description=f"Secret of the pipeline namespace with {OWN_KEY_VARIABLE}, the key that steps send",
    )
    quotas: dict[QuotaName, Quota] = Field(
        default={},
        max_length=MOST_QUOTAS,
        description=f"quotas by name of keys; {EVERY_OTHER} is for each other name, Slipway's own among them",
    )
    jwt: TokenIssuer | None = Field(default=None, description="whose tokens are taken beside keys; absent: nobody's")
