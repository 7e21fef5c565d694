"""What a Deployment does whose pods a quota refuses."""

import copy
import itertools

from ..control.backoff import LONGEST_S, Backoff
from .test_services_and_rollouts import deployment

QUOTA = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}


def test_what_was_refused_is_tried_again_after_pauses_that_double_and_at_once_when_it_changed():
    now = 0.0
    backoff = Backoff(lambda: now)
    tried = []
    while now < 3 * LONGEST_S:
        if backoff.why("set", "same") is None:
            tried.append(now)
            backoff.refused("set", "same", "full")
        now += 0.5

    pauses = [later - sooner for sooner, later in itertools.pairwise(tried)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= LONGEST_S / 2
    assert backoff.why("set", "same") == "full"
    assert backoff.why("set", "changed") is None


def test_an_annotation_of_a_deployment_lets_its_replica_set_ask_a_quota_again(space, until):
    space.core.create_namespaced_resource_quota(space.name, copy.deepcopy(QUOTA))
    space.apps.create_namespaced_deployment(space.name, deployment("web", "hello"))

    def refused():
        conditions = space.apps.read_namespaced_deployment("web", space.name).status.conditions or []
        return [one.message for one in conditions if one.type == "ReplicaFailure"]

    until(refused)
    assert "exceeded quota: small" in refused()[0]
    space.core.patch_namespaced_resource_quota("small", space.name, {"spec": {"hard": {"pods": "1"}}})
    asked = {"metadata": {"annotations": {"asked": "again"}}}
    space.apps.patch_namespaced_deployment("web", space.name, asked)

    until(lambda: space.apps.read_namespaced_deployment("web", space.name).status.replicas == 1)
    (made,) = space.apps.list_namespaced_replica_set(space.name).items
    assert made.metadata.annotations["asked"] == "again"
    assert not refused()
