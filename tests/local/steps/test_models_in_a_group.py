"""Two models that share a server, each released by itself: real Triton, real repositories, one Deployment."""

import time

import pytest

from tests.local.steps.step_pods import LIGHT_GATE, ByHand

pytestmark = pytest.mark.timeout(900)
GROUP = {"slipway.dev/group": "duo"}


def member(chain, name):
    return ByHand(chain, name, run=f"group-{int(time.time())}", gate=LIGHT_GATE, serving={"group": "duo"})


@pytest.fixture
def pair(chain):
    made = [member(chain, name) for name in ("duo-first", "duo-second")]
    yield made
    for each in made:
        each.remove()


def servers(chain):
    return {item["metadata"]["name"] for item in chain.cluster.find("Deployment", GROUP)}


def test_a_second_model_joins_the_server_and_nobody_who_asks_the_first_one_notices(chain, pair):
    first, second = pair
    first.reach("promote")
    first.make("promote")
    alone = servers(chain)

    with chain.traffic("duo-first") as traffic:
        second.reach("promote")
        assert servers(chain) > alone
        second.make("promote")
        time.sleep(2)

    assert traffic.requests > 20
    assert traffic.failures == []
    together = servers(chain)
    assert len(together) == 1
    assert together != alone
    assert chain.ask("duo-first", "duo-first")
    assert chain.ask("duo-second", "duo-second")
    assert chain.cluster.endpoints("duo-first") == chain.cluster.endpoints("duo-second")
    assert (chain.live("duo-first"), chain.live("duo-second")) == (first.id, second.id)
