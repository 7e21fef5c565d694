"""Failures of pods in the words of Kubernetes 1.36, and whether another try can help."""

import pytest

from slipway.tasks.contracts.pods.pod_failures import CAUSES, EXIT_CODES, failure_of, gone, last_words

LOST = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
}


def pod(reason="", message="", terminated=None):
    """A failed pod as the API server sends it."""
    state = {"terminated": terminated} if terminated else {"waiting": {"reason": "ContainerCreating"}}
    status = {"phase": "Failed", "containerStatuses": [{"name": "base", "state": state}]}
    if reason:
        status |= {"reason": reason, "message": message}
    return {"metadata": {"name": "demo-build-x", "namespace": "slipway"}, "status": status}


def failure(**changes):
    return failure_of(pod(**changes), "base", "transfer")


@pytest.mark.parametrize(
    ("reason", "message", "kind", "retry"),
    [
        ("Evicted", 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ', "scratch", False),
        ("Evicted", 'Container base exceeded its local ephemeral storage limit "8Gi". ', "scratch", False),
        ("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 8Gi. ", "scratch", False),
        (
            "Evicted",
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. ",
            "node pressure",
            True,
        ),
        ("Evicted", "The node had condition: [DiskPressure]. ", "node pressure", True),
        (
            "DeadlineExceeded",
            "Pod was active on the node longer than the specified deadline",
            "DeadlineExceeded",
            False,
        ),
        ("Preempting", "Preempted in order to admit critical pod", "Preempting", True),
        ("Terminated", "Pod was terminated in response to imminent node shutdown.", "Terminated", True),
        ("NodeShutdown", "Pod was rejected as the node is shutting down.", "NodeShutdown", True),
        (
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 2000, used: 1900, capacity: 2000",
            "not admitted",
            True,
        ),
        ("OutOfnvidia.com/gpu", "Node didn't have enough resource: nvidia.com/gpu", "not admitted", True),
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu",
            "not admitted",
            True,
        ),
    ],
)
def test_a_pod_that_its_node_ended_says_why_and_whether_another_try_helps(reason, message, kind, retry):
    found = failure(reason=reason, message=message, terminated=LOST)

    assert (found.kind, found.retry) == (kind, retry)
    assert message.strip().rstrip(".") in str(found)


@pytest.mark.parametrize(
    ("reason", "message", "remedy"),
    [
        (
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod",
            "PriorityClass",
        ),
        ("EvictionByEvictionAPI", "Eviction API: evicting", "drained"),
        ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", "taint"),
        ("DeletionByPodGC", "PodGC: node no longer exists", "removed"),
    ],
)
def test_a_pod_that_the_cluster_ended_says_who_did_it(reason, message, remedy):
    ended = pod(terminated={"exitCode": 143, "reason": "Error", "message": "ended by SIGTERM"})
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    ended["status"]["conditions"] = [condition]

    found = failure_of(ended, "base", "small")

    assert (found.kind, found.retry) == (reason, True)
    assert message in found.what
    assert remedy in found.remedy


def test_whoever_filled_the_scratch_volume_is_told_which_setting_to_raise():
    found = failure(reason="Evicted", message='Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ')

    assert found.remedy.startswith("Raise shapes.transfer.scratch in the site file")


@pytest.mark.parametrize(
    ("terminated", "kind", "retry", "words"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "OOMKilled", False, "exceeded its memory limit"),
        (
            {"exitCode": 137, "reason": "Error", "message": "12:00:01 INFO 3 of 9\n12:00:02 INFO 4 of 9\n"},
            "SIGKILL",
            True,
            "signal 9",
        ),
        ({"exitCode": 255, "reason": "Unknown"}, "container lost", True, "container base ended, and nobody saw how"),
        ({"exitCode": 143, "reason": "Error", "message": "ended by SIGTERM"}, "SIGTERM", True, "signal 15 (SIGTERM)"),
        ({"exitCode": 139, "reason": "Error"}, "signal", True, "signal 11 (SIGSEGV)"),
        (
            {"exitCode": 128, "reason": "StartError", "message": 'exec: "python": executable file not found in $PATH'},
            "StartError",
            False,
            "executable file not found",
        ),
        (
            {"exitCode": 128, "reason": "StartError", "message": "error mounting: no space left on device"},
            "container",
            True,
            "no space left on device",
        ),
    ],
)
def test_a_container_that_could_not_say_why_it_ended_is_explained(terminated, kind, retry, words):
    found = failure(terminated=terminated)

    assert (found.kind, found.retry) == (kind, retry)
    assert words in found.what


def test_the_end_of_a_killed_containers_log_is_not_taken_for_the_reason():
    log = "12:00:01 INFO 3 of 9 GiB\n12:00:02 INFO 4 of 9 GiB\n"

    found = failure(terminated={"exitCode": 137, "reason": "Error", "message": log})

    assert found.what.startswith("container base was killed by signal 9 (SIGKILL)")
    assert found.what.endswith("(the last line of its log: 12:00:02 INFO 4 of 9 GiB)")


@pytest.mark.parametrize("code", [1, 65, 70, 75])
def test_a_container_that_ended_by_itself_speaks_for_itself(code):
    assert failure(terminated={"exitCode": code, "reason": "Error", "message": "what, found, expected"}) is None


def test_what_the_kubelet_says_of_a_log_that_it_lost_is_not_a_containers_last_words():
    assert last_words("Error on reading termination message from logs: failed to open log file") == ""
    assert last_words(" said \n") == "said"


def test_a_pod_that_vanished_is_named():
    found = gone("slipway/demo-gate-1")

    assert found.retry
    assert "pod slipway/demo-gate-1 no longer exists" in str(found)


def test_which_failures_are_tried_again():
    final = {kind for kind, cause in CAUSES.items() if not cause.retry}

    assert final == {
        "scratch",
        "DeadlineExceeded",
        "OOMKilled",
        "StartError",
        "image name",
        "image pull",
        "configuration",
        "claim",
    }
    assert {code for code, retry in EXIT_CODES.items() if not retry} == {65}
