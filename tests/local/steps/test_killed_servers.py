"""kill -9 of each container of a serving pod with the real Triton, beside clients of all kinds, while another replica answers."""

import pytest

from tests.local.steps.on_volume import NAME
from tests.local.steps.step_pods import FETCH
from tests.support.cluster_process import kill_container
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(1200)
ROUND = 4
"""Requests of the four clients until each has asked about once."""


@pytest.fixture
def live(chain, request):
    """A live release of two replicas, whose processes are this machine's."""
    if chain.stack is None:
        pytest.skip("needs a cluster whose processes a test may kill")
    return request.getfixturevalue("on_volume")


def asked(traffic, rounds):
    """Wait until the clients have asked so many more times."""
    before = traffic.requests
    until(lambda: traffic.requests >= before + rounds * ROUND)


@pytest.mark.parametrize("container", ["triton", "front", "openai"])
def test_a_container_that_is_killed_starts_again_alone_and_clients_are_answered(chain, live, container):
    pod, restarts = live.pods()[0], live.restarts()
    restarts[pod["metadata"]["name"], container] += 1

    with chain.traffic(NAME) as traffic:
        asked(traffic, 2)
        assert traffic.failures == []
        kill_container(chain.stack.folder / "cluster", pod, container)
        until(lambda: live.restarts() == restarts and len(chain.cluster.endpoints(NAME)) == len(live.pods()))
        asked(traffic, 2)  # those that began before
        print(f"{container}: {traffic.requests} requests, failed: {traffic.failures}")
        traffic.failures.clear()
        asked(traffic, 3)

    assert traffic.failures == []
    assert live.restarts() == restarts


def test_a_fetch_that_is_killed_as_a_pod_is_replaced_starts_again_and_no_client_notices(chain, live):
    with chain.traffic(NAME) as traffic:
        assert any(fetch_was_killed(chain, live) for _ in range(3))
        asked(traffic, 2)

    assert traffic.failures == []


def fetch_was_killed(chain, live):
    """Replace a pod, and kill its successor's fetch; whether it was killed before it had ended."""
    gone = live.pods()[0]["metadata"]["name"]
    chain.core.delete_namespaced_pod(gone, chain.site.kubernetes.serving_namespace)
    live.kill_fetch(pods=2)
    until(lambda: len(chain.cluster.endpoints(NAME) - {gone}) == len(live.pods()) == 2)
    return sum(count for (_, container), count in live.restarts().items() if container == FETCH) == 1
