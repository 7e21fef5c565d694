"""A pod that lacks something never starts; a pod whose registry is busy may. Statuses and events of Kubernetes 1.36."""

import pytest

from slipway.tasks.contracts.pods.pod_starts import (
    BINDING_GRACE_S,
    CONFIGURATION_GRACE_S,
    ELSEWHERE_GRACE_S,
    PULL_GRACE_S,
    StartWatch,
)

ENVIRONMENT = [
    {"name": name, "valueFrom": {"secretKeyRef": {"name": "slipway-s3", "key": name}}}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
]
OWN_KEY = {
    "name": "SLIPWAY_API_KEY",
    "valueFrom": {"secretKeyRef": {"name": "slipway-own-key", "key": "SLIPWAY_API_KEY"}},
}
KEYS = {"name": "keys", "secret": {"secretName": "slipway-api-keys"}}
UNMOUNTED = 'MountVolume.SetUp failed for volume "site" : configmap "slipway-site" not found'


def pod(reason="ContainerCreating", message="", *, conditions=()):
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "metadata": {"name": "demo-plan-x", "namespace": "slipway"},
        "spec": {"containers": [{"name": "base", "env": [*ENVIRONMENT, OWN_KEY]}], "volumes": [KEYS]},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": status, "message": text} for status, text in conditions],
            "containerStatuses": [{"name": "base", "state": state}],
        },
    }


def event(message, reason="FailedMount"):
    return {"type": "Warning", "reason": reason, "message": message}


def after(seconds, found, events=()):
    """What the watch says of a pod that has been like this for so long."""
    watch = StartWatch()
    watch.look(found, events, 100.0)
    return watch.look(found, events, 100.0 + seconds)


@pytest.mark.parametrize("reason", ["InvalidImageName", "ErrImageNeverPull"])
def test_an_image_that_cannot_exist_ends_the_wait_at_once(reason):
    found = StartWatch().look(pod(reason, 'Failed to apply default image tag ":": invalid reference'), [], 100.0)

    assert (found.kind, found.retry) == ("image name", False)


def test_a_registry_gets_a_few_tries_and_then_its_words_are_the_reason():
    back_off = pod("ImagePullBackOff", 'Back-off pulling image "tasks:9": ErrImagePull: not found: manifest unknown')

    assert after(PULL_GRACE_S - 1, back_off) is None
    assert "manifest unknown" in after(PULL_GRACE_S, back_off).what


def test_the_tries_of_a_pull_are_one_wait_though_reason_and_message_change():
    watch = StartWatch()

    assert watch.look(pod("ErrImagePull", "dial tcp: i/o timeout"), [], 100.0) is None
    assert watch.look(pod("ImagePullBackOff", "Back-off"), [], 150.0) is None
    assert watch.look(pod("ErrImagePull", "no such host"), [], 100.0 + PULL_GRACE_S) is not None


@pytest.mark.parametrize(
    ("found", "events", "command"),
    [
        (
            pod("CreateContainerConfigError", 'secret "slipway-s3" not found'),
            [],
            "create secret generic slipway-s3 --from-literal=AWS_ACCESS_KEY_ID=<value> --from-literal=AWS_SECRET",
        ),
        (
            pod("CreateContainerConfigError", "couldn't find key AWS_ACCESS_KEY_ID in Secret slipway/slipway-s3"),
            [],
            "Add the key AWS_ACCESS_KEY_ID to Secret slipway/slipway-s3",
        ),
        (
            pod(),
            [event(UNMOUNTED)],
            "kubectl -n slipway create configmap slipway-site --from-file=site.yaml=<site file>",
        ),
        (
            pod(),
            [event('MountVolume.SetUp failed for volume "keys" : secret "slipway-api-keys" not found')],
            "slipway key create NAME",
        ),
        (
            pod("CreateContainerConfigError", 'secret "slipway-own-key" not found'),
            [],
            "slipway key create slipway --for-steps",
        ),
    ],
)
def test_a_missing_secret_or_configmap_ends_the_wait_within_seconds_with_the_command_that_creates_it(
    found, events, command
):
    assert after(CONFIGURATION_GRACE_S - 1, found, events) is None

    failure = after(CONFIGURATION_GRACE_S, found, events)

    assert (failure.kind, failure.retry) == ("configuration", False)
    assert command in failure.remedy


def test_other_warnings_do_not_end_the_wait():
    events = [
        event('MountVolume.SetUp failed for volume "models" : rpc error: code = DeadlineExceeded'),
        event("0/3 nodes are available: 3 Insufficient cpu.", "FailedScheduling"),
        event("Failed to create pod sandbox: network is not ready", "FailedCreatePodSandBox"),
    ]

    assert after(3600, pod(), events) is None


PREEMPTION = ". preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
NO_CLAIM = 'persistentvolumeclaim "models" not found'
LOST = 'persistentvolumeclaim "models" bound to non-existent persistentvolume "nfs-1"'
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
ONE_POD = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
ATTACHED = (
    'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node and can\'t be attached to '
    "another"
)


@pytest.mark.parametrize(
    ("why", "events", "grace_s", "kind", "told"),
    [
        (NO_CLAIM, [], CONFIGURATION_GRACE_S, "claim", "Create claim slipway/models"),
        (LOST, [], CONFIGURATION_GRACE_S, "claim", "Create claim slipway/models"),
        (UNBOUND, [], BINDING_GRACE_S, "claim", "Bind claim slipway/models"),
        (f"3 {ONE_POD}", [], ELSEWHERE_GRACE_S, "claim in use", "ReadOnlyMany"),
        ("", [event(ATTACHED, "FailedAttachVolume")], ELSEWHERE_GRACE_S, "claim in use", "ReadOnlyMany"),
    ],
)
def test_a_claim_that_cannot_be_mounted_is_given_up_in_minutes_with_what_to_do(why, events, grace_s, kind, told):
    conditions = [("False", f"0/3 nodes are available: {why}{PREEMPTION}")] if why else [("True", None)]
    found = pod(conditions=conditions)
    found["spec"]["volumes"] = [{"name": "source", "persistentVolumeClaim": {"claimName": "models"}}]

    assert after(grace_s - 1, found, events) is None
    failure = after(grace_s, found, events)

    assert (failure.kind, told in failure.remedy) == (kind, True)
    assert (why or "Multi-Attach error").removeprefix("3 ") in failure.what
    assert "preemption" not in failure.what


def test_a_pod_that_waits_for_a_node_is_not_waiting_for_a_claim():
    assert after(3600, pod(conditions=[("False", "0/3 nodes are available: 3 Insufficient cpu.")])) is None
