"""What pydantic writes for the types that people use is accepted, in both of its modes."""

import enum
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AnyUrl, BaseModel, Field, TypeAdapter

from slipway.tasks.contracts.wire.json_schema import SchemaError, grammar_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool = True


class Node(BaseModel):
    name: str
    children: list["Node"] = []


TYPES = [
    *(int, float, bool, str, bytes, Decimal, Any, Color, Node),
    *(date, time, datetime, timedelta, UUID, AnyUrl),
    *(int | None, int | str | None, tuple[int, str], tuple[int, ...], dict[str, int], dict[Literal["a", "b"], int]),
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Annotated[int, Field(gt=0, lt=10, multiple_of=2)],
    Annotated[float, Field(ge=0, le=1)],
    Annotated[Decimal, Field(gt=0, max_digits=5, decimal_places=2)],
    Annotated[str, Field(min_length=2, max_length=8, pattern="^[a-z]+$")],
    Annotated[list[int], Field(min_length=1, max_length=3)],
]


@pytest.mark.parametrize("mode", ["validation", "serialization"])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_the_schema_of_a_type_is_accepted(kind, mode):
    assert grammar_of(json.dumps(TypeAdapter(kind).json_schema(mode=mode)))


def test_a_set_is_refused_by_the_keyword_that_no_grammar_holds():
    with pytest.raises(SchemaError, match="uniqueItems"):
        grammar_of(json.dumps(TypeAdapter(set[str]).json_schema()))
