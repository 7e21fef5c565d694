"""From a kind to its engine."""

from typing import get_args

import pytest

from tasks.contracts.spec import EngineKind
from tasks.engines.registry import engine_for


@pytest.mark.parametrize("kind", get_args(EngineKind))
def test_every_kind_that_a_spec_may_name_has_an_engine_of_that_kind(kind):
    assert engine_for(kind).kind == kind
