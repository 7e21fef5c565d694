"""Expect an error by its class and fields, so that its wording can be improved without breaking tests."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slipway.tasks.contracts.errors import InputError, PipelineError


@contextmanager
def refused(error: type[PipelineError] = InputError, **fields: str) -> Iterator[None]:
    """The block raises `error`, and each named field (what, found, expected, remedy) contains the given text."""
    with pytest.raises(error) as caught:
        yield
    actual = {name: getattr(caught.value, name) for name in fields}
    assert all(text in actual[name] for name, text in fields.items()), f"{actual} does not contain {fields}"
