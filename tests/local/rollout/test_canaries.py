"""A canary in the embedded cluster: real routes, a real Envoy as the gateway, and clients that ask all the time."""

import dataclasses

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.steps import promote, roll_back, roll_out
from tests.fakes.documents import rollouts
from tests.fakes.documents.rollouts import channel, judged, published
from tests.fakes.traffic import shares
from tests.local.rollout.gateway_clients import GatewayClients
from tests.local.rollout.in_threads import InThreads
from tests.local.rollout.stand_in import HEAVY
from tests.local.stand_in_cluster import GATEWAY_PORT
from tests.support.refused import refused

ROUTES = {
    "kind": "gateway",
    "gateway": {"name": "models"},
    "host": "{name}.models.test",
    "grpc_host": "{name}-grpc.models.test",
}
ROLLOUT = {"strategy": "canary", "steps": [5, 25, 50], "bake_s": 3}
LIMITS = {"min_requests": 5, "slowdown": 20, "blind_looks": 20}
"""Wide: both releases, the gateway and the clients share the cores. A heavy request is slowed by far more, and a machine
that stalls answers too few requests in one look, not in all of them."""


@pytest.fixture
def workspace(workspace, site, gateway):
    serving = {**site.serving.model_dump(mode="json"), "routes": ROUTES}
    return dataclasses.replace(
        workspace, site=Site.model_validate({**site.model_dump(mode="json"), "serving": serving})
    )


def version(number, image="good", **changes):
    serving = {"image": f"test/triton:{image}", "ready_timeout_s": 90, "exposure": "ingress"}
    return rollouts.version(number, serving=serving, **changes)


def candidate(workspace, image, **rollout):
    made = version(2, image, rollout={**ROLLOUT, "canary": LIMITS, **rollout})
    published(workspace, made)
    roll_out.run(made, workspace)
    judged(workspace, made)
    return made


def live(workspace, image="good"):
    made = version(1, image)
    published(workspace, made)
    roll_out.run(made, workspace)
    judged(workspace, made)
    promote.run(made, workspace)
    return made


class Watched(InThreads):
    """What the model's routes gave the candidate, from each moment to the next. Used as a context."""

    def __init__(self, cluster, at_a_share=lambda share: None):
        self._cluster, self._at_a_share, self.seen = cluster, at_a_share, []
        super().__init__(self._watch)

    def _watch(self):
        while not self._stop.is_set():
            now = shares(self._cluster.get("HTTPRoute", "demo"))
            if [now] != self.seen[-1:]:
                self.seen.append(now)
                self._at_a_share(now[0])
            self._stop.wait(0.2)  # each step of the canary bakes for 3 s


def test_a_good_canary_is_promoted_step_by_step_and_no_request_fails(workspace, cluster, gateway):
    before = live(workspace, "steady")
    with GatewayClients(gateway, GATEWAY_PORT, "demo") as clients:
        clients.after(50)
        made = candidate(workspace, "steady", canary={**LIMITS, "slowdown": 100})
        clients.after(50)
        assert set(clients.answers) == {before.id}
        with Watched(cluster) as watched:
            told = promote.run(made, workspace)
        clients.forget()
        clients.after(50)
        assert clients.answers[made.id] >= 45

    assert clients.failures == []
    assert watched.seen == [(0, None), (5, None), (25, None), (50, None), (0, None)]
    assert "step 3 of 3 (50 % of the requests): passed" in str(told.data["moves"])
    assert channel(workspace).live.release_id == made.id


def test_a_canary_that_is_slow_from_its_second_step_on_is_rolled_back_there(workspace, cluster, gateway):
    before = live(workspace)
    with GatewayClients(gateway, GATEWAY_PORT, "demo") as clients:
        clients.after(50)
        made = candidate(workspace, "lagging")

        def ask_more_of_it(share):
            if share == 25:
                clients.text = HEAVY

        with Watched(cluster, ask_more_of_it) as watched:
            with refused(what="was failed at step 2 of 3 (25 % of the requests)", found="answer "):
                promote.run(made, workspace)
            roll_back.run(made, workspace)
        clients.forget()
        clients.after(100)
        assert set(clients.answers) == {before.id}

    assert clients.failures == []
    assert watched.seen == [(0, None), (5, None), (25, None), (0, None)]
    assert channel(workspace).live.release_id == before.id
    assert cluster.get("Deployment", made.id) is None


def test_a_canary_that_is_slow_for_copies_of_the_requests_reaches_no_client(workspace, cluster, gateway):
    before = live(workspace)
    with GatewayClients(gateway, GATEWAY_PORT, "demo") as clients:
        clients.text = HEAVY
        clients.after(50)
        made = candidate(workspace, "lagging", mirror=50)
        with pytest.raises(InputError) as caught:
            promote.run(made, workspace)
        roll_back.run(made, workspace)
        clients.after(50)

    assert "was failed at a mirror of 50 % of the live requests" in caught.value.what
    assert (clients.failures, set(clients.answers)) == ([], {before.id})
