"""Triton of the candidate or of the live release is killed, or a serving pod goes, while a release is in progress."""

from slipway.tasks.serving.rendered.manifests import RELEASE_LABEL
from tests.local.faults.model import DONE
from tests.support.cluster_process import kill_container
from tests.support.waiting import until

AT_ONCE = 4
"""Clients that ask at once."""


def test_a_candidate_whose_triton_was_killed_after_its_gate_is_promoted_once_it_is_ready_again(model, asking):
    before, new = model.live, model.candidate()

    with asking(model.cluster.live_address("demo")) as clients:
        restarts = model.restarts(new.id)
        model.kill_triton(new.id)
        until(lambda: model.restarts(new.id) != restarts)  # the cluster has noticed
        assert model.answers() == before
        model.steps(new, "promote")
        clients.after(10)

    assert clients.failures == []
    model.assert_whole(new.id, ("promoted", new.id))


def test_a_candidate_whose_pod_is_evicted_is_promoted_with_another_one(model, server):
    before, new = model.live, model.candidate()
    (pod,) = model.cluster.find("Pod", {RELEASE_LABEL: new.id})

    model.fill_a_volume(pod, server.state)
    until(lambda: pod["metadata"]["name"] not in model.pods(new.id))
    assert model.answers() == before
    model.steps(new, "promote")

    assert pod["metadata"]["name"] not in model.pods(new.id)
    model.assert_whole(new.id, ("promoted", new.id))


def test_a_live_release_whose_triton_is_killed_during_the_flip_costs_the_flip_nothing(model):
    before, new, restarts = model.live, model.candidate(rollout={"keep": 2}), []

    model.cluster.act("Service", "demo", before=lambda: restarts.append(model.kill_triton(before)))
    model.steps(new, "promote")

    model.assert_whole(new.id, ("promoted", new.id), warm=[before])
    model.started_again(before, restarts[0])
    assert model.revert() == DONE, model.message  # the way back is there again
    model.assert_whole(before, ("rolled-back", new.id), ("promoted", new.id))


def test_each_container_of_a_serving_pod_is_started_again_alone_while_the_other_replica_answers(model, server, asking):
    new = model.released(serving={"replicas": {"min": 2, "max": 2}})
    (pod, _) = model.cluster.find("Pod", {RELEASE_LABEL: new.id})
    restarts = model.restarts(new.id)

    for container in ("triton", "front", "openai"):
        expected = restarts[pod["metadata"]["name"], container] + 1
        with asking(model.cluster.live_address("demo")) as clients:
            clients.after(AT_ONCE)
            kill_container(server.state, pod, container)
            until(lambda: model.restarts(new.id)[pod["metadata"]["name"], container] == expected)  # noqa: B023
            until(lambda: len(model.pods(new.id)) == 2)
            clients.after(2 * AT_ONCE)  # those that began before
            meanwhile = clients.failures.copy()
            clients.failures.clear()
            clients.after(5 * AT_ONCE)

        print(f"{container}: {meanwhile}")
        assert clients.failures == []
        assert [each for each in meanwhile if "HTTPError" in each and "503" not in each] == []
        restarts[pod["metadata"]["name"], container] = expected
        assert model.restarts(new.id) == restarts

    after = model.released()  # the same model can be released as before
    model.assert_whole(after.id, ("promoted", after.id), ("promoted", new.id))
