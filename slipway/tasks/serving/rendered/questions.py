"""The requests that questions of a gate become, and how long their answers may take. Pure."""

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.spec.question import SmokeQuestion, answer_tokens
from slipway.tasks.contracts.spec_fields import PLAIN_ANSWER_TOKENS
from slipway.tasks.contracts.stored.release import Release

TIMEOUT_S = 60.0
SLOWEST_TOKENS_PER_S = 10
"""Below what people wait for. A longer answer gets more time than TIMEOUT_S."""


def with_tokens(question: SmokeQuestion, release: Release) -> SmokeQuestion:
    """The question with the limit of its answer."""
    room, thinks = release.spec.engine.answer_room, release.plan.thinks
    tokens = answer_tokens(question.max_tokens, room=room, thinks=thinks)
    return question.model_copy(update={"max_tokens": tokens})


def request_of(question: SmokeQuestion) -> GenerateRequest:
    """What is sent to the server."""
    sampling = question.requested()
    return GenerateRequest(
        question.prompt,
        question.max_tokens or PLAIN_ANSWER_TOKENS,
        temperature=sampling.pop("temperature", 0.0),
        seed=sampling.pop("seed", None),
        lora=question.lora,
        sampling=sampling,
        chat_template_kwargs=question.chat_template_kwargs,
        history=tuple(turn.model_dump() for turn in question.history),
    )


def timeout_s(request: GenerateRequest) -> float:
    """How long the answer may take."""
    return max(TIMEOUT_S, request.max_tokens / SLOWEST_TOKENS_PER_S)
