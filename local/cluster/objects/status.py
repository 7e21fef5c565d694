"""Errors for clients: Status objects with the reasons that client-go and the Python clients check."""

from typing import Any

from .resources import Resource


class ApiError(Exception):
    """Ends a request with a Status body."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def body(self) -> dict[str, Any]:
        """The Status object."""
        return failure(self.code, self.reason, self.message, self.details)


def failure(code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """A Status of kind Failure."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return status | {"message": message, "reason": reason, "code": code} | ({"details": details} if details else {})


def not_found(resource: Resource, name: str) -> ApiError:
    """404 for one object."""
    message = f'{resource.qualified} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(resource, name))


def already_exists(resource: Resource, name: str) -> ApiError:
    """409 for a name that is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str | None = None) -> ApiError:
    """409 for an update based on an old version."""
    text = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {text}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def gone(resource_version: int, oldest: int) -> ApiError:
    """410 for a watch that starts before the log does."""
    return ApiError(410, "Expired", f"too old resource version: {resource_version} ({oldest})")


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """403 for one object that admission refuses."""
    return denied(resource.group, resource.plural, name, why)


def denied(group: str, plural: str, name: str, why: str) -> ApiError:
    """403 for a kind that need not exist; `plural` is empty for a path outside the API."""
    if not plural:
        return ApiError(403, "Forbidden", f"forbidden: {why}", {})
    qualified = f"{plural}.{group}" if group else plural
    about = f'{qualified} "{name}"' if name else qualified
    details = ({"name": name} if name else {}) | ({"group": group} if group else {}) | {"kind": plural}
    return ApiError(403, "Forbidden", f"{about} is forbidden: {why}", details)


def unauthorized() -> ApiError:
    """401: the request carries credentials that are not valid."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def not_allowed(message: str) -> ApiError:
    """405."""
    return ApiError(405, "MethodNotAllowed", message)


def invalid(resource: Resource, name: str, problems: list[tuple[str, str]]) -> ApiError:
    """422: `problems` are pairs of a field's path and what is wrong with it."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    error = invalid_kind(kind, name, problems)
    return ApiError(422, "Invalid", error.message, _details(resource, name) | (error.details or {}))


def invalid_kind(kind: str, name: str, problems: list[tuple[str, str]]) -> ApiError:
    """422 for a kind that is not stored; `kind` is qualified, as in Deployment.apps."""
    texts = [f"{field}: {text}" for field, text in problems]
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    causes = [{"reason": "FieldValueInvalid", "message": text, "field": field} for field, text in problems]
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', {"causes": causes})


def _details(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "kind": resource.plural}
    return details | ({"group": resource.group} if resource.group else {})
