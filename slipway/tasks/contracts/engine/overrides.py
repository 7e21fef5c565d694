"""`engine.overrides`: fields of config.json that a spec replaces, for the runtime that reads the file."""

from typing import Literal

from pydantic import Field

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.spec_fields import Tokens

MOST_SCALED = 1024
"""More than any published factor; a larger one is a mistake."""


class RopeParameters(UserDocument):
    """How rotary positions are scaled, so that a sequence may be longer. Its base, rope_theta, stays the model's."""

    rope_type: Literal["linear", "dynamic", "yarn"]
    factor: float = Field(gt=1, le=MOST_SCALED)
    original_max_position_embeddings: Tokens | None = Field(
        default=None, description="yarn: the positions that are scaled; the model's max_position_embeddings when absent"
    )


class Overrides(UserDocument):
    """What the runtime reads in place of the model's own config.json."""

    rope_parameters: RopeParameters
