"""Reads the body and the options of a request."""

import json
from typing import Any

import yaml
from aiohttp import web

from ..objects.resources import Object, Resource
from ..objects.schema import refuse_unknown_fields
from ..objects.status import ApiError, bad_request

PROTOBUF = "application/vnd.kubernetes.protobuf"


async def read_body(request: web.Request, *, any_shape: bool = False) -> Any:
    """The request's body as data, from JSON or YAML; an object unless `any_shape`.

    Raises:
        ApiError: 400, the body cannot be read; 415, it is Kubernetes' protobuf, which kubectl sends for a few kinds.
    """
    if request.content_type == PROTOBUF:
        text = "the body of the request is protobuf; this server accepts application/json and application/yaml"
        raise ApiError(415, "UnsupportedMediaType", text)
    text = await request.text()
    try:
        body = _from_yaml(text) if "yaml" in request.content_type else json.loads(text)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from error
    if not isinstance(body, dict) and not any_shape:
        raise bad_request("the body of the request is not an object")
    return body


def _from_yaml(text: str) -> Any:
    """A YAML document. Most clients write JSON, for which PyYAML takes hundreds of times as long."""
    try:
        return json.loads(text)
    except ValueError:
        return yaml.safe_load(text)


async def delete_options(request: web.Request) -> dict[str, Any]:
    """DeleteOptions, from the body and the query."""
    options: dict[str, Any] = await read_body(request) if request.can_read_body and await request.read() else {}
    query = request.query
    if "gracePeriodSeconds" in query:
        options["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    if is_dry_run(request):
        options["dryRun"] = ["All"]
    return options


def check_fields(request: web.Request, resource: Resource, body: Any) -> None:
    """Refuse fields that the API does not have, if the request requires strict validation."""
    if request.query.get("fieldValidation") == "Strict":
        refuse_unknown_fields(resource, body)


def named(body: Object, name: str) -> Object:
    """Return `body` with the name from the URL; a name of its own must be the same."""
    given = (body.get("metadata") or {}).get("name", name)
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    return body | {"metadata": (body.get("metadata") or {}) | {"name": name}}


def is_dry_run(request: web.Request) -> bool:
    """Whether the request asks for a dry run."""
    return request.query.get("dryRun") == "All"
