"""What the status of a pod means for a roll-out."""

import pytest

from slipway.tasks.adapters.kube import pod_state


def pod(*, inits=(), mains=(), conditions=()):
    def status(name, state, last=None, ready=False):
        return {"name": name, "state": state, "lastState": last or {}, "ready": ready}

    return {
        "metadata": {"name": "demo-1-abc"},
        "status": {
            "initContainerStatuses": [status(*entry) for entry in inits],
            "containerStatuses": [status(*entry) for entry in mains],
            "conditions": [{"type": kind, "status": state, "message": text} for kind, state, text in conditions],
        },
    }


def waiting(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


def ended(code, message=""):
    return {"terminated": {"exitCode": code, "message": message}}


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (("fetch", ended(65, "config.pbtxt is damaged")), "exit code 65", "config.pbtxt is damaged"),
        (("fetch", waiting("CrashLoopBackOff"), ended(65, "damaged")), "CrashLoopBackOff", "damaged"),
        (("triton", waiting("CrashLoopBackOff"), ended(1, "no model")), "CrashLoopBackOff", "no model"),
    ],
)
def test_a_container_that_will_never_run_is_trouble_in_its_own_words(status, reason, message):
    found = pod_state.trouble(pod(mains=[status]))

    assert (found.pod, found.container, found.reason, found.message) == ("demo-1-abc", status[0], reason, message)


@pytest.mark.parametrize(
    "status",
    [
        ("triton", waiting("ContainerCreating")),
        ("triton", waiting("ErrImagePull", "the registry is busy")),
        ("triton", waiting("ImagePullBackOff", "the registry is busy")),
        ("triton", waiting("CreateContainerConfigError", "no secret yet")),
        ("fetch", waiting("CrashLoopBackOff"), ended(75, "the object store does not answer")),
        ("fetch", ended(75)),
        ("fetch", ended(0)),
        ("triton", {"running": {}}),
    ],
)
def test_a_container_that_may_still_run_is_no_trouble(status):
    assert pod_state.trouble(pod(mains=[status])) is None


def test_a_pod_on_its_way_out_takes_no_more_connections():
    ready = pod(conditions=[("Ready", "True", "")])
    leaving = {**ready, "metadata": {**ready["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}

    assert (pod_state.is_ready(ready), pod_state.is_ready(leaving)) == (True, False)


def test_what_is_waited_for_is_neither_ready_nor_done():
    found = pod(
        inits=[("fetch", ended(0))], mains=[("triton", {"running": {}}), ("proxy", {"running": {}}, None, True)]
    )

    assert [container for _, container, _ in pod_state.waiting_for([found])] == ["triton"]
    assert pod_state.summary([found]) == "fetch terminated, triton running, proxy running, ready"
    assert pod_state.summary([]) == "no pod yet"


def test_a_pod_that_no_node_has_started_is_not_the_same_as_no_pod():
    waiting = {"metadata": {"name": "one"}, "status": {"phase": "Pending"}}
    rejected = {"metadata": {"name": "two"}, "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}

    assert pod_state.summary([waiting, rejected]) == "pod pending, pod failed (UnexpectedAdmissionError)"


def test_a_sidecar_that_passes_on_what_its_server_answers_is_named_after_it():
    inits = [("fetch", ended(0)), ("front", {"running": {}})]
    found = pod(inits=inits, mains=[("triton", {"running": {}})])
    found["spec"] = {"initContainers": [{"name": "fetch"}, {"name": "front", "restartPolicy": "Always"}]}

    assert [container for _, container, _ in pod_state.waiting_for([found])] == ["triton", "front"]
