"""From a kind to its engine."""

import pytest

from tasks.contracts.errors import InputError
from tasks.engines.registry import AVAILABLE, engine_for


@pytest.mark.parametrize("kind", AVAILABLE)
def test_an_available_kind_has_an_engine_of_that_kind(kind):
    assert engine_for(kind).kind == kind


@pytest.mark.parametrize("kind", ["trt-engine", "llmapi", "vllm"])
def test_a_kind_without_an_engine_is_refused_with_what_there_is(kind):
    with pytest.raises(InputError, match=rf"{kind}.*it has openvino"):
        engine_for(kind)
