"""Renders the templates of k8s_manifests/serving. Every value is written as JSON, so none can add structure."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from slipway.tasks.contracts.errors import InputError

LIBYAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Documents = list[dict[str, Any]]


def documents(
    folder: Path, name: str, values: dict[str, Any], complete: Callable[[Documents], Documents] = list
) -> Documents:
    """The YAML documents of a template, as `complete` returns them.

    Raises:
        InputError: the template lacks a value, or a value is not JSON.
    """
    given = json.dumps(values, default=_not_json)
    rendered: Documents = json.loads(_as_json(folder, name, given, complete))
    return rendered


def text(folder: Path, name: str, values: dict[str, Any]) -> str:
    """The text of a template.

    Raises:
        InputError: the template lacks a value, or a value is not JSON.
    """
    try:
        return _environment(folder).get_template(name).render(values)
    except TemplateError as error:
        raise InputError(
            f"template {name} cannot be rendered: {error}",
            expected=f"only the values {', '.join(sorted(values))}",
            remedy="Fix the template.",
        ) from error


@functools.cache
def _environment(folder: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - YAML, and every value passes tojson
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "default": _not_json}
    return environment


def _not_json(value: Any) -> Any:
    """Refuse a value that a manifest cannot hold. An undefined value prints its own name."""
    raise TypeError(f"{value} is not JSON")


@functools.lru_cache(maxsize=32)
def _as_json(folder: Path, name: str, given: str, complete: Callable[[Documents], Documents]) -> str:
    """Render a template into JSON, which has no anchors, so that changing one value changes no other.

    The result is cached: a roll-out renders the same manifest at every observation.
    """
    rendered = text(folder, name, json.loads(given))
    return json.dumps(complete([document for document in parsed(rendered) if document]))


def parsed(text: str) -> list[Any]:
    """The documents of a YAML text, by libyaml, which is ten times as fast.

    It refuses surrogate pairs, which is how JSON writes characters beyond U+FFFF; PyYAML's own reader takes them.
    """
    try:
        return list(yaml.load_all(text, Loader=LIBYAML))
    except yaml.YAMLError:
        return list(yaml.safe_load_all(text))
