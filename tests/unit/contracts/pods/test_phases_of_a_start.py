"""Which phase of its start a pod is in, and how time is counted. Statuses and events of Kubernetes 1.36."""

import pytest

from slipway.tasks.contracts.pods.start_phases import (
    PhaseClock,
    StartPhase,
    budget_name,
    late,
    latest_phase,
    phase_of,
    reason,
)

SCHEDULED = {"type": "PodScheduled", "status": "True"}
UNPLACED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}
CREATING, INITIALIZING = ({"waiting": {"reason": why}} for why in ("ContainerCreating", "PodInitializing"))
RUNNING, DONE, FAILED = {"running": {}}, {"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 75}}


def pod(*, condition=SCHEDULED, inits=(), mains=(), limits=None):
    """A server's pod: an init container, a sidecar and the program, in these states."""
    fetch, front = {"name": "fetch"}, {"name": "front", "restartPolicy": "Always"}
    status = {"conditions": [condition] if condition else []}
    if inits:
        status["initContainerStatuses"] = [
            {"name": name, "state": state} for name, state in zip(("fetch", "front"), inits, strict=False)
        ]
    if mains:
        status["containerStatuses"] = [{"name": "triton", "state": state, **more} for state, more in mains]
    triton = {"name": "triton", "resources": {"limits": limits or {}}}
    return {
        "metadata": {"name": "demo-1-abc"},
        "spec": {"initContainers": [fetch, front], "containers": [triton]},
        "status": status,
    }


@pytest.mark.parametrize(
    ("found", "phase"),
    [
        (pod(condition=None), "schedule"),
        (pod(condition=UNPLACED), "schedule"),
        (pod(), "pull"),
        (pod(inits=[INITIALIZING, INITIALIZING], mains=[(INITIALIZING, {})]), "pull"),
        (pod(inits=[RUNNING, INITIALIZING], mains=[(INITIALIZING, {})]), "run"),
        (pod(inits=[FAILED, INITIALIZING], mains=[(INITIALIZING, {})]), "run"),
        (pod(inits=[DONE, INITIALIZING], mains=[(INITIALIZING, {})]), "pull"),
        (pod(inits=[DONE, RUNNING], mains=[(INITIALIZING, {})]), "pull"),
        (pod(inits=[DONE, RUNNING], mains=[(RUNNING, {})]), "run"),
        (pod(inits=[DONE, RUNNING], mains=[({"waiting": {"reason": "CrashLoopBackOff"}}, {"restartCount": 2})]), "run"),
        (pod(inits=[DONE, RUNNING], mains=[({"waiting": {"reason": "ImagePullBackOff"}}, {})]), "pull"),
    ],
)
def test_a_pod_is_in_the_phase_of_the_container_whose_turn_it_is(found, phase):
    assert phase_of(found) == phase


def test_several_pods_are_as_far_as_the_slowest_and_no_pod_has_no_node():
    placed, running = pod(), pod(inits=[DONE, RUNNING], mains=[(RUNNING, {})])

    assert latest_phase([running, placed]) == "pull"
    assert latest_phase([running]) == "run"
    assert latest_phase([]) == "schedule"


def test_time_counts_in_the_phase_that_it_was_spent_in_even_if_that_comes_again():
    clock = PhaseClock({StartPhase.SCHEDULE: 100, StartPhase.PULL: 60})
    looks = [("schedule", 0), ("pull", 90), ("run", 120), ("pull", 500), ("pull", 529)]

    changes = [clock.look(StartPhase(phase), at) for phase, at in looks]

    assert changes == [True, True, True, True, False]
    assert clock.progress() == "schedule 90 of 100 s, pull 59 of 60 s, run 380 s"
    assert not clock.is_late
    clock.look(StartPhase.PULL, 530)
    assert clock.is_late


def test_the_reason_is_that_of_the_phase_in_the_words_of_whoever_gave_it():
    events = [
        {"reason": "FailedScheduling", "message": "Failed to schedule pod, incompatible with nodepool"},
        {"reason": "NotTriggerScaleUp", "message": "pod didn't trigger scale-up:\n1 max node group size reached"},
        {"reason": "Pulling", "message": 'Pulling image "tasks-gpu:1"'},
        {"reason": "Scheduled", "message": "Successfully assigned"},
    ]

    placing = reason(pod(condition=UNPLACED), events)

    assert "incompatible with nodepool" in placing
    assert "scale-up: 1 max node group size reached" in placing
    assert "Insufficient nvidia.com/gpu" in placing
    assert reason(pod(), events) == 'Pulling: Pulling image "tasks-gpu:1"'
    assert reason(pod(inits=[DONE, RUNNING], mains=[(RUNNING, {})]), events) == ""


def test_why_an_image_cannot_be_pulled_is_not_hidden_by_the_kubelet_s_second_event():
    cause = 'Failed to pull image "tasks:1": failed to resolve image: connection refused'
    events = [
        {"reason": "Failed", "message": text} for text in (cause, "Error: ErrImagePull", "Error: ImagePullBackOff")
    ]

    assert reason(pod(), events) == f"Failed: {cause}"


@pytest.mark.parametrize(("limits", "name"), [({"nvidia.com/gpu": "8"}, "gpu"), ({"memory": "1Gi"}, "cpu")])
def test_a_late_pod_names_the_field_that_gives_it_more_time(limits, name):
    found, clock = pod(condition=UNPLACED, limits=limits), PhaseClock({StartPhase.SCHEDULE: 60})
    for now in (0, 61):
        clock.look(StartPhase.SCHEDULE, now)

    failure = late(found, clock, "FailedScheduling: no room")

    assert budget_name(found) == name
    assert f"61 s for a node, as long as budgets.{name}.schedule_min of the site allows" in failure.what
    assert f"raise budgets.{name}.schedule_min in the site file" in failure.remedy
    assert failure.retry
