"""Who may use the models of a site: API keys, whose hashes are in a Secret."""

from typing import Annotated

from pydantic import Field

from slipway.tasks.contracts.api_keys import MOST_KEYS, NAME, OWN_KEY_VARIABLE
from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.kubernetes_text import ObjectName

KEYS_FILE = "keys"
"""Key of the Secret with the hashes, one API key a line: slipway/tasks/contracts/api_keys.py."""


EVERY_OTHER = "*"
"""Name of the quota of all keys that have none of their own."""
QuotaName = Annotated[str, Field(pattern=rf"^(\*|{NAME.pattern})$")]


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
        max_length=MOST_KEYS,
        description=f"quotas by name of keys; {EVERY_OTHER} is for each other name, Slipway's own among them",
    )
