"""The kinds of the Gateway API: which specs are valid here, and their defaults."""

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from .resources import Object, Resource


def problems(resource: Resource, item: Object) -> Iterator[tuple[str, str]]:
    """Yield the path of each wrong field of a spec, and what is wrong with it."""
    for error in sorted(_validator(resource.kind).iter_errors(item.get("spec") or {}), key=lambda each: each.json_path):
        yield _path(error), f"Invalid value: {error.message}"


def fill(resource: Resource, item: Object) -> None:
    """Write the CRD's defaults into a spec, in place."""
    if isinstance(item.get("spec"), dict):
        _fill(_schemas()[resource.kind], item["spec"])


@cache
def _schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    return schemas


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(_schemas()[kind])


def _path(error: ValidationError) -> str:
    path = error.json_path.removeprefix("$").removeprefix(".")
    return f"spec.{path}" if path else "spec"


def _fill(schema: dict[str, Any], value: Any) -> None:
    if isinstance(value, list):
        for element in value:
            _fill(schema.get("items", {}), element)
    elif isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name not in value and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
            if name in value:
                _fill(inner, value[name])
