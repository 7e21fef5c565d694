"""Clients that keep their connections lose no request when a release is promoted, retired, rolled back or scaled down.

Each test waits until the pod is gone, because that is when a kept connection would break.
"""

from concurrent.futures import ThreadPoolExecutor

import urllib3

from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.steps import promote, revert, roll_back, roll_out
from tests.fakes.documents import rollouts
from tests.fakes.documents.rollouts import judged
from tests.local.rollout.kept_clients import GrpcKept, GrpcStreamKept, HttpStreamKept, OpenAiKept
from tests.support.waiting import until


def serving(**changes):
    return {"serving": {"image": "test/triton:good", "ready_timeout_s": 90, "connection_age_s": 600, **changes}}


def released(workspace, number, *, keep=2, **changes):
    return rollouts.released(workspace, number, rollout={"keep": keep}, **serving(**changes))


def pods_of(cluster, release):
    """Names of the release's pods, those that are ending included."""
    labels = {"slipway.dev/release": release.id}
    return {item["metadata"]["name"] for item in cluster.find("Pod", labels)}


def all_moved(clients, cluster, *, to, gone):
    """Wait until every client is answered by `to` and no pod of `gone` is left, and for more answers after that."""
    clients.until(lambda: not pods_of(cluster, gone) and clients.releases() == {to.id})
    counts = {key: len(answers) for key, answers in clients.answers.items()}
    clients.until(lambda: all(len(clients.answers[key]) > count for key, count in counts.items()))


def test_kept_connections_outlive_the_release_that_is_no_longer_kept(workspace, cluster, keeping):
    first = released(workspace, 1, keep=1)
    with keeping(cluster.live_address("demo")) as clients:
        clients.until(clients.all_answered)
        second = released(workspace, 2, keep=1)
        all_moved(clients, cluster, to=second, gone=first)

    assert clients.failures == []


def test_kept_connections_outlive_a_release_that_is_rolled_back(workspace, cluster, keeping):
    first, second = released(workspace, 1), released(workspace, 2)
    with keeping(cluster.live_address("demo")) as clients:
        clients.until(clients.all_answered)
        assert clients.releases() == {second.id}

        revert.run(RevertRequest(name="demo", run="run-9", reason="drill"), workspace)
        all_moved(clients, cluster, to=first, gone=second)

    assert clients.failures == []


def test_kept_connections_outlive_a_refused_candidate(workspace, cluster, keeping):
    live = released(workspace, 1)
    candidate = rollouts.version(2, **serving())
    roll_out.run(candidate, workspace)
    with keeping(cluster.live_address("demo")) as clients:
        clients.until(clients.all_answered)
        judged(workspace, candidate, "failed")
        roll_back.run(candidate, workspace)
        all_moved(clients, cluster, to=live, gone=candidate)

    assert clients.failures == []


def test_kept_connections_outlive_a_replica(workspace, cluster, keeping):
    release = released(workspace, 1, replicas={"min": 2, "max": 2})
    before = pods_of(cluster, release)
    with keeping(cluster.live_address("demo")) as clients:
        clients.until(clients.all_answered)
        item = cluster.get("Deployment", release.id)
        item["spec"]["replicas"] = 1
        cluster.apply([item])
        clients.until(lambda: len(pods_of(cluster, release)) == 1)
        (left,) = pods_of(cluster, release)
        clients.until(lambda: {answers[-1] for answers in clients.answers.values()} == {left})

    assert len(before) == 2
    assert clients.failures == []


def test_kept_connections_move_to_the_live_release_though_the_old_one_stays_warm(workspace, cluster, keeping):
    first = released(workspace, 1, connection_age_s=2)
    with keeping(cluster.live_address("demo")) as clients:
        clients.until(clients.all_answered)
        second = released(workspace, 2)
        clients.until(lambda: clients.releases() == {second.id})

    assert clients.failures == []
    assert pods_of(cluster, first)


def test_an_answer_that_outlasts_its_connections_age_and_its_pods_farewell_arrives_whole(workspace, cluster):
    first = released(workspace, 1, keep=1, connection_age_s=1)
    second = rollouts.candidate(workspace, 2, rollout={"keep": 1}, **serving())
    address = cluster.live_address("demo")
    with ThreadPoolExecutor() as clients:
        asking = [kind(address) for kind in (HttpStreamKept, OpenAiKept, GrpcStreamKept)]
        answers = [clients.submit(client.ask, "200") for client in asking]
        promote.run(second, workspace)
        assert not any(answer.done() for answer in answers)

        assert {answer.result().rsplit("-", 2)[0] for answer in answers} == {first.id}
    for client in asking:
        client.close()


def test_a_client_that_is_idle_while_its_pod_goes_finds_the_next_one(workspace, cluster):
    """gRPC clients are sent GOAWAY. HTTP has no such thing: a client that looks before it sends is told in time."""
    first, second = released(workspace, 1), released(workspace, 2)
    address = cluster.live_address("demo")
    pool, channel = urllib3.HTTPConnectionPool(address.host, address.ports["http"], retries=False), GrpcKept(address)
    asked = [pool.request("GET", "/v2").data.decode(), channel.ask()]

    revert.run(RevertRequest(name="demo", run="run-9", reason="drill"), workspace)
    until(lambda: not pods_of(cluster, second))
    asked += [pool.request("GET", "/v2").data.decode(), channel.ask()]

    assert [answer.rsplit("-", 2)[0] for answer in asked] == [second.id, second.id, first.id, first.id]
    pool.close()
    channel.close()
