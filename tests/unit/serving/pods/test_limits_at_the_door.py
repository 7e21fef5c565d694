"""How large a request may be, and how many: from the model's longest prompt and the memory of its server."""

from dataclasses import replace

import pytest
from generation.workers.preparers import BUDGET, COUNT

from slipway.tasks.serving.rendered.front_routes import COPIES, RENDERERS_BYTES, SHARE, limits_of
from tests.fakes.releases import SPEC, release
from tests.support.refused import refused

GIB = 1 << 30


def spec(**engine):
    limits = {"max_input_tokens": 1000, "max_sequence_tokens": 200_000, "max_batch_size": 8}
    return release(engine={**SPEC["engine"], **limits, **engine}).spec


def test_a_longer_prompt_may_have_more_bytes_and_fewer_fit_at_once():
    short, long = limits_of([spec()], 8 * GIB), limits_of([spec(max_input_tokens=131_072)], 8 * GIB)

    assert short.body_bytes < long.body_bytes < 10 << 20
    assert short.requests > long.requests > 8


def test_requests_in_flight_fit_in_their_share_of_the_memory():
    limits = limits_of([spec()], GIB)

    assert (
        limits.requests * limits.body_bytes * COPIES
        <= (GIB - RENDERERS_BYTES) // SHARE
        < (limits.requests + 1) * limits.body_bytes * COPIES
    )


def test_all_processes_that_prepare_requests_have_their_room():
    assert COUNT * BUDGET.memory_bytes < RENDERERS_BYTES


def test_a_group_takes_the_longest_prompt_of_its_models_and_room_for_the_templates_of_each():
    alone = limits_of([spec(max_input_tokens=4000)], GIB)

    assert limits_of([spec(), spec(max_input_tokens=4000)], GIB + RENDERERS_BYTES) == replace(alone, batch=16)


def test_a_server_that_cannot_hold_a_batch_of_the_longest_prompts_is_refused():
    with refused(found="64 MiB", expected="at least 1294 MiB: 352 MiB for chat templates"):
        limits_of([spec(max_batch_size=64, max_input_tokens=20_000)], 64 << 20)


@pytest.mark.parametrize("tokens", [1, 2048, 131_072])
def test_openais_messages_and_tools_have_more_room(tokens):
    limits = limits_of([spec(max_input_tokens=tokens)], 32 * GIB)

    assert limits.body_bytes < limits.openai_bytes <= 16 << 20
