"""How an engine guesses tokens ahead, for the model to accept or reject: engine.speculative of a spec. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.spec_fields import HubRepo, Revision

MAX_DRAFT_TOKENS = 32
"""Tokens guessed at once. Published drafts are trained for 3 to 8; each more costs a step of the draft."""
MAX_LOOKUP_TOKENS = 32

DraftTokens = Annotated[
    int, Field(ge=1, le=MAX_DRAFT_TOKENS, description="tokens that are guessed before the model checks them")
]


class Drafted(UserDocument):
    """A model of its own guesses: an EAGLE head, or a smaller model with the same vocabulary."""

    method: Literal["eagle", "eagle3", "draft_model"]
    repo: HubRepo = Field(description="<org>/<name> on the Hub; it is fetched with the source's token")
    revision: Revision = Field(default="main", description="branch, tag or commit; plan resolves it")
    num_tokens: DraftTokens


class MultiTokenPrediction(UserDocument):
    """Layers of the model itself guess, which were trained with it."""

    method: Literal["mtp"]
    num_tokens: DraftTokens


class PromptLookup(UserDocument):
    """What followed the last tokens when they occurred before is the guess."""

    method: Literal["ngram"]
    num_tokens: DraftTokens
    lookup_tokens: int = Field(
        default=4, ge=1, le=MAX_LOOKUP_TOKENS, description="most tokens that are looked up in what came before"
    )


Speculative = Annotated[Drafted | MultiTokenPrediction | PromptLookup, Field(discriminator="method")]
