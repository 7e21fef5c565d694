"""A pod that outgrows its local storage is evicted, with the status that the kubelet would write."""

import pytest
from kubernetes import client

FILL = """
import sys, time
print('writing', flush=True)
with open(sys.argv[1] + '/large', 'wb') as stream:
    for _ in range(8):
        stream.write(b'x' * 1024**2)
time.sleep(60)
"""
MOUNTS = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}], "args": ["/scratch"]}


def scratch(**settings):
    return [{"name": "scratch", "emptyDir": settings}]


@pytest.mark.parametrize("medium", ["", "Memory"])
def test_an_empty_dir_above_its_limit_evicts_the_pod(space, medium):
    space.run("fills", FILL, container=MOUNTS, volumes=scratch(sizeLimit="4Mi", medium=medium))

    status = space.finished("fills").status
    ended = status.container_statuses[0].state.terminated

    assert (status.phase, status.reason) == ("Failed", "Evicted")
    assert status.message == 'Usage of EmptyDir volume "scratch" exceeds the limit "4Mi". '
    assert (ended.exit_code, ended.reason) == (143, "Error")


def test_an_eviction_is_an_event(space):
    space.run("fills", FILL, container=MOUNTS, volumes=scratch(sizeLimit="4Mi"))
    space.finished("fills")

    events = [event for event in space.core.list_namespaced_event(space.name).items if event.reason == "Evicted"]

    assert [(event.type, "EmptyDir" in event.message) for event in events] == [("Warning", True)]


def test_an_evicted_pod_has_no_logs(space):
    container = MOUNTS | {"terminationMessagePolicy": "FallbackToLogsOnError"}
    space.run("fills", FILL, container=container, volumes=scratch(sizeLimit="4Mi"))

    ended = space.finished("fills").status.container_statuses[0].state.terminated

    assert ended.message.startswith("Error on reading termination message from logs: failed to try resolving symlinks")
    assert space.logs("fills").startswith("unable to retrieve container logs for ")


def test_a_pod_within_its_limit_stays(space):
    code = FILL.replace("time.sleep(60)", "time.sleep(5)")
    space.run("fills", code, container=MOUNTS, volumes=scratch(sizeLimit="16Mi"))

    assert space.finished("fills").status.phase == "Succeeded"


def test_local_storage_above_the_limits_of_the_containers_evicts_the_pod(space):
    container = MOUNTS | {"resources": {"limits": {"ephemeral-storage": "4Mi"}}}
    space.run("fills", FILL, container=container, volumes=scratch())

    message = space.finished("fills").status.message

    assert message == "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. "


def test_a_workload_replaces_an_evicted_pod(space, until):
    body = space.pod_body("", FILL, container=MOUNTS, volumes=scratch(sizeLimit="4Mi"))
    template = {"metadata": {"labels": {"app": "fills"}}, "spec": body["spec"] | {"restartPolicy": "Always"}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "fills"}}, "template": template}
    space.apps.create_namespaced_deployment(space.name, {"metadata": {"name": "fills"}, "spec": spec})

    def replaced():
        events = space.core.list_namespaced_event(space.name).items
        evicted = {event.involved_object.name for event in events if event.reason == "Evicted"}
        names = {pod.metadata.name for pod in space.core.list_namespaced_pod(space.name).items}
        return evicted and names - evicted

    until(replaced)
    space.apps.delete_namespaced_deployment("fills", space.name, body=client.V1DeleteOptions())
