"""The fields of a contract by their paths, and documents that differ in one of them."""

from typing import get_args

from pydantic import BaseModel


def field_paths(contract):
    """Paths of all fields that hold values: `engine.lora.name` for the name of each adapter."""
    paths = set()
    for name, field in contract.model_fields.items():
        parts = _contracts(field.annotation)
        paths |= {f"{name}.{path}" for part in parts for path in field_paths(part)} if parts else {name}
    return paths


def with_field(document, path, value):
    """The document with another value there, unchecked; the parts on the way to it are made where they are absent."""
    name, _, rest = path.partition(".")
    if rest:
        held = getattr(document, name, None)
        part = held[0] if isinstance(held, tuple) and held else held
        if rest.partition(".")[0] not in getattr(type(part), "model_fields", {}):
            annotation = type(document).model_fields[name].annotation
            fitting = [each for each in _contracts(annotation) if rest.partition(".")[0] in each.model_fields]
            part = fitting[0].model_construct()
        value = with_field(part, rest, value)
        value = (value,) if isinstance(held, tuple) else value
    return document.model_copy(update={name: value})


def _contracts(annotation):
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [part for inner in get_args(annotation) for part in _contracts(inner)]
