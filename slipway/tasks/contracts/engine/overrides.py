"""`engine.overrides`: fields of config.json that a spec replaces, for the runtime that reads the file."""

from typing import Literal, Self

from pydantic import Field, model_validator

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

    @model_validator(mode="after")
    def _only_yarn_names_what_it_scales(self) -> Self:
        if self.original_max_position_embeddings is not None and self.rope_type != "yarn":
            raise ValueError(
                f"original_max_position_embeddings is of yarn: remove it; {self.rope_type} scales the model's own"
            )
        return self


class Overrides(UserDocument):
    """What the runtime reads in place of the model's own config.json."""

    rope_parameters: RopeParameters
