"""Questions with known answers, which a gate sends to a release: what may be asked, and what is a right answer."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.engine.sampling import SamplingParameters
from slipway.tasks.contracts.spec.answer_patterns import check_pattern, is_found
from slipway.tasks.contracts.spec.answer_text import MAX_FUZZY_CHARS, MIN_SIMILARITY, is_similar, without_thoughts
from slipway.tasks.contracts.spec_fields import (
    MAX_ANSWER_CHARS,
    MAX_PROMPT_CHARS,
    PLAIN_ANSWER_TOKENS,
    THOUGHTFUL_ANSWER_TOKENS,
    AnswerTokens,
    TemplateArguments,
)

MAX_TURNS = 32

QUESTION_TOKENS = Field(
    default=None,
    description=f"tokens of an answer at most; when absent {PLAIN_ANSWER_TOKENS}, or for a chat template that mentions "
    f"thinking what the engine has room for, at most {THOUGHTFUL_ANSWER_TOKENS}",
)


def answer_tokens(max_tokens: int | None, *, room: int, thinks: bool) -> int:
    """How many tokens an answer may have.

    Args:
        max_tokens: as the question says, or None.
        room: tokens that the engine surely has for an answer.
        thinks: whether the chat template mentions thinking.
    """
    if max_tokens is not None:
        return max_tokens
    return max(PLAIN_ANSWER_TOKENS, min(THOUGHTFUL_ANSWER_TOKENS, room)) if thinks else PLAIN_ANSWER_TOKENS


class Turn(UserDocument):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str = Field(min_length=1, max_length=MAX_PROMPT_CHARS)


class Matching(UserDocument):
    """How a model's answer is compared with the expected one."""

    match: Literal["exact", "contains", "regex", "fuzzy"] = "exact"
    min_similarity: float | None = Field(
        default=None,
        ge=0.5,
        le=1,
        description="with match: fuzzy, the least share of characters in common, apart from capitals, kinds of spaces "
        f"and forms of characters (Unicode NFKC); {MIN_SIMILARITY} when absent",
    )

    @model_validator(mode="after")
    def _only_fuzzy_has_a_similarity(self) -> Self:
        if self.min_similarity is not None and self.match != "fuzzy":
            raise ValueError(f"min_similarity is for match: fuzzy, and match is {self.match}: remove it")
        return self


class SmokeQuestion(SamplingParameters, Matching):
    """A question with a known answer. The boot test uses the first one too."""

    history: tuple[Turn, ...] = Field(
        default=(),
        max_length=MAX_TURNS,
        description="messages before the prompt, such as a system prompt; the prompt is the user's next one",
    )
    prompt: str = Field(min_length=1, max_length=MAX_PROMPT_CHARS)
    answer: str = Field(min_length=1, max_length=MAX_ANSWER_CHARS, description="what the stripped answer must match")
    max_tokens: AnswerTokens | None = QUESTION_TOKENS
    lora: str | None = Field(default=None, description="adapter of engine.lora that answers; the model when absent")
    chat_template_kwargs: TemplateArguments = Field(
        default_factory=dict, description="override those of engine.chat_template_kwargs"
    )

    @field_validator("answer")
    @classmethod
    def _has_no_line_break_around_it(cls, answer: str) -> str:
        """Drop the line break of a YAML block: the answer of a model is stripped before they are compared."""
        if not answer.strip():
            raise ValueError("an answer needs more than spaces")
        return answer.strip("\r\n")

    @model_validator(mode="after")
    def _has_room_for_its_fewest_tokens(self) -> Self:
        if None not in (self.max_tokens, self.min_tokens) and self.min_tokens > self.max_tokens:  # type: ignore[operator]
            raise ValueError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")
        return self

    @model_validator(mode="after")
    def _can_match(self) -> Self:
        if self.match == "regex":
            check_pattern(self.answer)
        if self.match == "exact" and self.answer != self.answer.strip():
            raise ValueError("an exact answer has no spaces around it, because the model's answer is stripped")
        if self.match == "fuzzy" and len(self.answer) > MAX_FUZZY_CHARS:
            raise ValueError(f"a fuzzy answer has {len(self.answer)} characters; at most {MAX_FUZZY_CHARS} are allowed")
        return self

    def accepts(self, text: str) -> bool:
        """Whether `text` is a right answer. It is what follows the model's thoughts, stripped; thoughts are none."""
        answer = without_thoughts(text)
        if answer is None:
            return False
        match self.match:
            case "exact":
                return answer == self.answer
            case "contains":
                return self.answer in answer
            case "regex":
                return is_found(self.answer, answer)
            case "fuzzy":
                return is_similar(self.answer, answer, self.min_similarity or MIN_SIMILARITY)
