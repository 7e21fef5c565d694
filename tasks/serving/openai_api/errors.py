"""Errors as OpenAI's clients expect them: a status, and an object with message, type, param and code."""

from http import HTTPStatus
from typing import Any

TYPES = {
    HTTPStatus.NOT_FOUND: "invalid_request_error",
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
    ) -> None:
        super().__init__(message)
        self.message, self.param, self.code, self.status = message, param, code, status

    @property
    def body(self) -> dict[str, Any]:
        """The document that is sent."""
        kind = TYPES.get(HTTPStatus(self.status), "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def unavailable(message: str) -> ApiError:
    """An error that a retry may cure: OpenAI's clients repeat a request after status 503."""
    return ApiError(message, code="unavailable", status=HTTPStatus.SERVICE_UNAVAILABLE)
