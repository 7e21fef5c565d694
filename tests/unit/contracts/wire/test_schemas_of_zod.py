"""What zod writes for the types that people use is accepted, or refused by the keyword that no grammar holds.

That answers obey them is seen in tests/contracts/wheels.
"""

import json

import pytest

from slipway.tasks.contracts.wire.grammar.ebnf import Dialect
from slipway.tasks.contracts.wire.json_schema import SchemaError, grammar_of
from tests.support.json_schemas import NOT_OF_ZOD, ZOD


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("name", sorted({*ZOD} - {*NOT_OF_ZOD}))
def test_the_schema_of_a_type_is_accepted(name, dialect):
    assert grammar_of(json.dumps(ZOD[name]), dialect)


@pytest.mark.parametrize("name", NOT_OF_ZOD)
def test_what_no_grammar_holds_is_refused_by_name(name):
    with pytest.raises(SchemaError, match=NOT_OF_ZOD[name]):
        grammar_of(json.dumps(ZOD[name]))
