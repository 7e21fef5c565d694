"""Who may use the models of a site: API keys, whose hashes are in a Secret."""

from pydantic import Field

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.kubernetes_text import ObjectName

OWN_KEY_VARIABLE = "SLIPWAY_API_KEY"
"""Environment variable with the key of whoever sends requests: steps and the command. Also its name in the Secret."""
KEYS_FILE = "keys"
"""Key of the Secret with the hashes, one API key a line: slipway/tasks/contracts/api_keys.py."""

KEYS_VOLUME = "keys"
"""Volume with that Secret, in a pod whose front asks for keys (k8s_manifests/serving)."""


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
