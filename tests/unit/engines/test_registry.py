"""From a kind to its code."""

from typing import get_args

import pytest

from slipway.tasks.contracts.engine.engine_kinds import EngineKind
from slipway.tasks.engines.registry import maker_for, planner_for


@pytest.mark.parametrize("kind", get_args(EngineKind))
def test_every_kind_that_a_spec_may_name_has_a_planner_and_a_maker_of_its_own(kind):
    others = [other for other in get_args(EngineKind) if other != kind]

    assert type(planner_for(kind)) not in {type(planner_for(other)) for other in others}
    assert type(maker_for(kind)) not in {type(maker_for(other)) for other in others}
