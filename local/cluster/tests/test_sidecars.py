"""Sidecars: init containers that start before the main containers, run beside them and end after them."""

import pytest
from kubernetes import client

from .server import IMAGE


def sidecar(code, **more):
    return {"name": "beside", "image": IMAGE, "command": ["python", "-c", code], "restartPolicy": "Always", **more}


def test_a_pod_is_ready_when_its_sidecar_is_as_well(space, until, tmp_path):
    go = tmp_path / "go"
    probe = {"exec": {"command": ["python", "-c", f"open({str(go)!r})"]}, "periodSeconds": 1, "timeoutSeconds": 5}
    waits = "import signal; signal.pause()"
    space.run("pair", waits, initContainers=[sidecar(waits, readinessProbe=probe)])
    until(lambda: space.pod("pair").status.container_statuses[0].ready)
    before = ready(space.pod("pair"))
    go.touch()

    pod = until(lambda: ready(space.pod("pair")))

    (beside,) = pod.status.init_container_statuses
    assert before is None
    assert (beside.ready, beside.started, beside.state.running is not None) == (True, True, True)


def ready(pod):
    return pod if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or []) else None


def test_a_sidecar_is_told_to_end_only_after_the_main_container_has_ended(space, until, tmp_path):
    log = tmp_path / "log"
    up = {"exec": {"command": ["python", "-c", f"assert 'sidecar started' in open({str(log)!r}).read()"]}}
    probe = up | {"periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 60}
    space.run(
        "pair",
        recorded(log, "main", after="hook of the sidecar", takes_s=1),
        restartPolicy="Always",
        terminationGracePeriodSeconds=60,
        initContainers=[sidecar(recorded(log, "sidecar"), startupProbe=probe, lifecycle={"preStop": hook(log)})],
    )
    until(lambda: ready(space.pod("pair")) and log.exists() and len(log.read_text().splitlines()) == 2)
    space.core.delete_namespaced_pod("pair", space.name)
    until(lambda: space.gone("pair"))

    said = log.read_text().splitlines()
    assert said[:2] == ["sidecar started", "main started"]
    assert set(said[2:4]) == {"hook of the sidecar", "main told"}
    assert said[4:] == ["main ended", "sidecar told", "sidecar ended"]


def recorded(log, name, after="", takes_s=0):
    """Code that records what it is told; it ends some time after `after` is in the log."""
    return f"""
import signal, sys, time
def say(text):
    with open({str(log)!r}, "a") as file:
        file.write("{name} " + text + "\\n")
def end(*_):
    say("told")
    while {after!r} not in open({str(log)!r}).read():
        time.sleep(0.05)
    time.sleep({takes_s})
    say("ended")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
say("started")
signal.pause()
"""


def hook(log):
    return {"exec": {"command": ["python", "-c", f"open({str(log)!r}, 'a').write('hook of the sidecar\\n')"]}}


def test_a_sidecar_that_ends_is_started_again_whatever_the_pods_policy(space, until):
    space.run("pair", "import signal; signal.pause()", initContainers=[sidecar("pass")])

    until(lambda: space.pod("pair").status.init_container_statuses[0].restart_count >= 1)

    pod = space.pod("pair")
    assert pod.status.phase == "Running"
    assert pod.status.container_statuses[0].restart_count == 0
    assert pod.status.container_statuses[0].state.running is not None


def test_a_sidecar_that_ends_before_the_main_containers_begin_leaves_other_init_containers_as_they_are(
    space, until, tmp_path
):
    go = tmp_path / "go"
    beside = sidecar(f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.05)")
    plain = {"image": IMAGE, "command": ["python", "-c", "pass"]}
    slow = {"image": IMAGE, "command": ["python", "-c", "import signal; signal.pause()"]}
    space.run("pair", "pass", initContainers=[beside, plain | {"name": "fetch"}, slow | {"name": "slow"}])

    def statuses():
        return space.pod("pair").status.init_container_statuses or []

    until(lambda: any(each.name == "slow" and each.state.running for each in statuses()))
    go.touch()
    _, fetch, slow = until(lambda: (seen := statuses()) and seen[0].state.waiting and seen)

    assert (fetch.ready, fetch.state.terminated.exit_code) == (True, 0)
    assert slow.state.running is not None


def test_a_pod_is_done_when_its_main_container_is_and_its_sidecar_is_stopped(space, until):
    space.run("pair", "pass", initContainers=[sidecar("import signal; signal.pause()")])

    assert space.finished("pair").status.phase == "Succeeded"
    until(lambda: "Stopping container beside" in [event.message for event in events(space)])


def events(space):
    return space.core.list_namespaced_event(space.name).items


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"restartPolicy": "OnFailure"}, "only Always or none"),
        ({"restartPolicy": None, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}, "without restartPolicy=Always"),
    ],
)
def test_an_init_container_is_a_sidecar_or_runs_to_its_end(space, change, message):
    container = {key: value for key, value in (sidecar("pass") | change).items() if value is not None}

    with pytest.raises(client.ApiException) as caught:
        space.run("pair", "pass", initContainers=[container])

    assert (caught.value.status, message in caught.value.body) == (422, True)
