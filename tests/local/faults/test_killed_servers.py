"""Triton of the candidate or of the live release is killed, or a serving pod goes, while a release is in progress."""

from tasks.serving.rendered.manifests import RELEASE_LABEL
from tests.local.faults.model import DONE
from tests.support.waiting import until


def test_a_candidate_whose_triton_was_killed_after_its_gate_is_promoted_once_it_is_ready_again(model, asking):
    before, new = model.live, model.candidate()

    with asking(model.cluster.live_address("demo")) as clients:
        model.kill_triton(new.id)
        until(lambda: not model.pods(new.id))  # the cluster has noticed
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
