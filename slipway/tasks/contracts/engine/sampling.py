"""Parameters that shape an answer: the same fields and ranges for questions of a gate, batches and OpenAI's API.

Names and meanings are OpenAI's, and vLLM's for those that OpenAI does not have (top_k, min_tokens, repetition_penalty,
bad_words). Which engine kind obeys which: slipway/tasks/contracts/engine/engine_kinds.py, and for users docs/openai.md.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, Field

from slipway.tasks.contracts.base import UserDocument

MAX_STOP_WORDS = 16
MAX_BAD_WORDS = 64
MOST = 2**31 - 1
"""Engines take these as 32-bit integers."""

Temperature = Annotated[float, Field(ge=0, le=100, description="0 chooses the most probable token")]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1, description="makes an answer at a temperature above 0 repeatable")]
TextOfAnAnswer = Annotated[str, Field(min_length=1)]
StopWords = Annotated[list[TextOfAnAnswer], Field(max_length=MAX_STOP_WORDS)]
BadWords = Annotated[list[TextOfAnAnswer], Field(max_length=MAX_BAD_WORDS, description="the answer has none of these")]
TopP = Annotated[float, Field(gt=0, le=1, description="tokens are chosen from the likeliest with this probability")]
TopK = Annotated[int, Field(ge=-1, le=MOST, description="tokens are chosen from this many; 0 and -1: from all")]
MinTokens = Annotated[int, Field(ge=0, le=MOST, description="the answer does not end before")]
Penalty = Annotated[float, Field(ge=-2, le=2)]
RepetitionPenalty = Annotated[float, Field(ge=0.01, le=100)]

NEUTRAL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "temperature": (0,),
        "stop": ([],),
        "top_p": (1,),
        "top_k": (0, -1),
        "min_tokens": (0,),
        "presence_penalty": (0,),
        "frequency_penalty": (0,),
        "repetition_penalty": (1,),
        "bad_words": ([],),
    }
)
"""Values with which a parameter asks for nothing that a server would not do anyway."""


class Sampling(BaseModel):
    """The parameters that are absent by default wherever they may be set."""

    seed: Seed | None = None
    stop: TextOfAnAnswer | StopWords | None = Field(
        default=None, description="texts that end the answer and are not part of it"
    )
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_tokens: MinTokens | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    bad_words: BadWords | None = None


class SamplingParameters(Sampling, UserDocument):
    """How an answer is generated; what is absent changes nothing."""

    temperature: Temperature = 0.0

    def requested(self) -> dict[str, Any]:
        """What was set to something that changes an answer, by name. A greedy answer is the same with every seed."""
        parameters = {name: getattr(self, name) for name in SamplingParameters.model_fields}
        chosen = {
            name: value
            for name, value in parameters.items()
            if value is not None and value not in NEUTRAL.get(name, ())
        }
        if "temperature" not in chosen:
            chosen.pop("seed", None)
        if isinstance(chosen.get("stop"), str):
            chosen["stop"] = [chosen["stop"]]
        return chosen


SAMPLING_NAMES = frozenset(SamplingParameters.model_fields)
