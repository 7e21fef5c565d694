"""Errors as OpenAI's clients expect them: a status, and an object with message, type, param and code."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

RETRY_AFTER_S = 1
TYPES = {
    HTTPStatus.NOT_FOUND: "invalid_request_error",
    HTTPStatus.TOO_MANY_REQUESTS: "tokens",
    HTTPStatus.INTERNAL_SERVER_ERROR: "server_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "service_unavailable",
}


class ApiError(Exception):
    """A request that gets no answer; clients read why from the response."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = HTTPStatus.BAD_REQUEST,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.param, self.code, self.status = message, param, code, status
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        """The document that is sent."""
        kind = TYPES.get(HTTPStatus(self.status), "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


CONTEXT_LENGTH = "context_length_exceeded"
"""OpenAI's code for a request that is too long; clients shorten the conversation when they see it."""
PROMPT_TOO_LONG, ANSWER_TOO_LONG = "this model takes at most", "prompt and max_tokens together"
"""What a model's refusals for length contain (generation's question.py): Triton passes on a text and nothing else."""
OUTSIDE_VOCABULARY = "the prompt has the token"
"""The same for a token that the model does not have (generation/requests/conversation.py)."""
OF_PARAMETERS = ("ignore_eos", "logit_bias", "reasoning_effort", "tools")
"""Parameters with whose names the model's refusals begin."""


def refusal(message: str, *, prompt: str, length: str, longest: int | None) -> ApiError:
    """The error for a request that the model refused.

    Args:
        message: the model's own text.
        prompt: what the client calls the prompt.
        length: what the client calls the most tokens of an answer.
        longest: tokens of a prompt and its answer at most, if that is known.
    """
    if PROMPT_TOO_LONG in message:
        return too_long(message, param=prompt, longest=longest)
    if ANSWER_TOO_LONG in message:
        return too_long(message, param=length, longest=longest)
    named = next((name for name in OF_PARAMETERS if message.startswith(f"{name} ")), None)
    return ApiError(message, param=prompt if OUTSIDE_VOCABULARY in message else named)


def too_long(message: str, *, param: str, longest: int | None) -> ApiError:
    """The error for a request that is longer than the model takes.

    It begins with OpenAI's words: LiteLLM knows it by them (1.110.2, exception_mapping_utils.py), others by the code.
    """
    words = "" if longest is None else f"This model's maximum context length is {longest} tokens: "
    return ApiError(f"{words}{message}", param=param, code=CONTEXT_LENGTH)


def unavailable(message: str) -> ApiError:
    """An error that a retry may cure: OpenAI's clients repeat a request after status 503."""
    return ApiError(message, code="unavailable", status=HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=RETRY_AFTER_S)


@contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Errors of another route's parameters name those of this one; `names` is from theirs to its own."""
    try:
        yield
    except ApiError as error:
        name, rest = _head_of(error.param or "")
        own = names.get(name, name)
        param = f"{own}{rest}" or None
        message = f"{own}{error.message.removeprefix(name)}" if error.message.startswith(name) else error.message
        raise ApiError(
            message, param=param, code=error.code, status=error.status, retry_after_s=error.retry_after_s
        ) from error


def _head_of(param: str) -> tuple[str, str]:
    """The name of a parameter, and the place within it."""
    end = min((at for at in (param.find("["), param.find(".")) if at >= 0), default=len(param))
    return param[:end], param[end:]
