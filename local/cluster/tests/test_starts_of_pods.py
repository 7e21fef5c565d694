"""Pods that do not start yet: they wait for an image, a node, a volume, or what fills a variable."""

import re

import pytest
import yaml

from .server import IMAGE, NAME


def waiting(space, name):
    return space.pod(name).status.container_statuses[0].state.waiting


def events(space, reason):
    return {event.message for event in space.core.list_namespaced_event(space.name).items if event.reason == reason}


def test_an_unknown_image_is_tried_and_then_waited_for(space, until):
    image = "nvcr.io/nvidia/tritonserver:26.07"
    pod = space.run("pulls", "pass", container={"image": image})
    first = pod.status.container_statuses[0].state.waiting
    until(lambda: waiting(space, "pulls").reason == "ImagePullBackOff")
    then = waiting(space, "pulls")

    assert (pod.status.phase, first.reason) == ("Pending", "ErrImagePull")
    assert first.message.startswith("rpc error: code = NotFound desc = failed to pull and unpack image")
    assert "test/python:1" in first.message
    assert then.message == f'Back-off pulling image "{image}": ErrImagePull: {first.message}'
    assert events(space, "Pulling") == {f'Pulling image "{image}"'}
    assert events(space, "BackOff") == {f'Back-off pulling image "{image}"'}
    assert events(space, "Failed") == {
        f'Failed to pull image "{image}": {first.message}',
        "Error: ErrImagePull",
        "Error: ImagePullBackOff",
    }


def test_an_image_that_is_never_to_be_pulled_says_so(space):
    pod = space.run("pulls", "pass", container={"image": "nobody/knows:it", "imagePullPolicy": "Never"})

    state = pod.status.container_statuses[0].state.waiting
    assert state.reason == "ErrImageNeverPull"
    assert state.message == 'Container image "nobody/knows:it" is not present with pull policy of Never'


def test_a_pod_starts_once_its_image_is_in_the_table(own_cluster, space_in, until, tmp_path):
    space = space_in(own_cluster, "pulls")
    space.run("pulls", "print('came')", container={"image": "late:1"})

    with own_cluster.images.open("a") as table:
        table.write('  late:1: {path_prefix: ["${PYTHON}"]}\n')
    space.finished("pulls")

    assert space.logs("pulls") == "came\n"


def test_an_image_whose_programs_are_missing_cannot_be_pulled_until_they_are_there(
    own_cluster, space_in, until, tmp_path
):
    space, programs = space_in(own_cluster, "pulls"), tmp_path / "bin"
    with own_cluster.images.open("a") as table:
        table.write(f'  unbuilt:1: {{path_prefix: ["{programs}", "${{PYTHON}}"]}}\n')
    space.run("pulls", "print('came')", container={"image": "unbuilt:1"})

    until(lambda: waiting(space, "pulls").reason == "ImagePullBackOff")
    assert f"it is not built, because {programs} does not exist" in waiting(space, "pulls").message

    programs.mkdir()
    space.finished("pulls")
    assert space.logs("pulls") == "came\n"


def events_of(space, name):
    listed = space.core.list_namespaced_event(space.name, field_selector=f"involvedObject.name={name}").items
    return [(event.type, event.reason, event.message) for event in listed]


def test_a_pod_is_scheduled_once_a_node_has_the_label_that_it_selects(space, until):
    label = f"example.com/{space.name}"
    space.run("early", "pass", nodeSelector={label: "l4"})
    until(lambda: any(reason == "FailedScheduling" for _, reason, _ in events_of(space, "early")))

    space.core.patch_node(NAME, {"metadata": {"labels": {label: "l4"}}})

    assert space.finished("early").status.phase == "Succeeded"
    assert ("Normal", "Scheduled") in [(kind, reason) for kind, reason, _ in events_of(space, "early")]


def test_a_pod_is_scheduled_once_its_claim_exists(space, until):
    claim = {"metadata": {"name": "models"}, "spec": {"accessModes": ["ReadOnlyMany"]}}
    source = {"name": "source", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}
    pod = space.run("reader", "pass", volumes=[source])

    scheduled = next(entry for entry in pod.status.conditions if entry.type == "PodScheduled")
    assert scheduled.message.startswith('0/1 nodes are available: persistentvolumeclaim "models" not found. ')

    space.core.create_namespaced_persistent_volume_claim(space.name, claim)

    assert space.finished("reader").status.phase == "Succeeded"


def test_an_image_that_takes_time_is_pulled_once_and_events_say_so(space):
    table = yaml.safe_load(space.cluster.images.read_text())
    table["images"]["test/large:1"] = {**table["images"][IMAGE], "pull_s": 8}
    space.cluster.images.write_text(yaml.safe_dump(table))
    large = {"image": "test/large:1"}

    waiting = space.run("first", "pass", container=large).status.container_statuses[0].state.waiting
    space.finished("first")
    space.run("second", "pass", container=large)
    space.finished("second")

    assert waiting.reason == "ContainerCreating"
    (pulled,) = [text for _, reason, text in events_of(space, "first") if reason == "Pulled"]
    took = re.match(r'Successfully pulled image "test/large:1" in ([\d.]+)s', pulled)
    assert took is not None, pulled
    assert float(took[1]) >= 8
    again = [(reason, text) for _, reason, text in events_of(space, "second") if reason.startswith("Pull")]
    assert again == [("Pulled", 'Container image "test/large:1" already present on machine')]


@pytest.mark.parametrize(
    ("volume", "made", "said"),
    [
        ({"configMap": {"name": "late"}}, None, 'configmap "late" not found'),
        ({"secret": {"secretName": "late"}}, None, 'secret "late" not found'),
        (
            {"configMap": {"name": "late", "items": [{"key": "k", "path": "k"}]}},
            "config_map",
            "configmap references non-existent config key: k",
        ),
        (
            {"secret": {"secretName": "late", "items": [{"key": "k", "path": "k"}]}},
            "secret",
            "references non-existent secret key: k",
        ),
    ],
)
def test_a_pod_whose_volume_lacks_something_is_being_created_until_it_comes(space, until, volume, made, said):
    kind = "secret" if "secret" in volume else "config_map"
    if made:
        getattr(space.core, f"create_namespaced_{made}")(space.name, {"metadata": {"name": "late"}})
    mounts = {"volumeMounts": [{"name": "site", "mountPath": "/etc/site"}], "args": ["/etc/site/k"]}
    code = "import sys; print(open(sys.argv[1]).read())"
    pod = space.run("waits", code, container=mounts, volumes=[{"name": "site", **volume}])
    messages = until(lambda: events(space, "FailedMount"))

    body = {"metadata": {"name": "late"}, "stringData" if kind == "secret" else "data": {"k": "came"}}
    getattr(space.core, f"{'replace' if made else 'create'}_namespaced_{kind}")(
        *(["late"] if made else []), space.name, body
    )
    space.finished("waits")

    assert (pod.status.phase, pod.status.pod_ip) == ("Pending", None)
    assert pod.status.container_statuses[0].state.waiting.reason == "ContainerCreating"
    assert messages == {f'MountVolume.SetUp failed for volume "site" : {said}'}
    assert space.logs("waits") == "came\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"secretKeyRef": {"name": "none", "key": "k"}}, 'secret "none" not found'),
        ({"configMapKeyRef": {"name": "none", "key": "k"}}, 'configmap "none" not found'),
        ({"secretKeyRef": {"name": "some", "key": "k"}}, "couldn't find key k in Secret {}/some"),
        ({"configMapKeyRef": {"name": "some", "key": "k"}}, "couldn't find key k in ConfigMap {}/some"),
    ],
)
def test_a_variable_that_cannot_be_filled_is_a_config_error(space, source, said):
    space.core.create_namespaced_secret(space.name, {"metadata": {"name": "some"}})
    space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "some"}})

    space.run("waits", "pass", container={"env": [{"name": "KEY", "valueFrom": source}]})

    state, said = waiting(space, "waits"), said.format(space.name)
    assert (state.reason, state.message) == ("CreateContainerConfigError", said)
    assert events(space, "Failed") == {f"Error: {said}"}


def test_a_missing_secret_is_waited_for(space, until):
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]
    pod = space.run("waits", "import os; print(os.environ['KEY'])", container={"env": env})
    waiting = pod.status.container_statuses[0].state.waiting

    space.core.create_namespaced_secret(space.name, {"metadata": {"name": "late"}, "stringData": {"k": "came"}})
    space.finished("waits")

    assert waiting.reason == "CreateContainerConfigError"
    assert space.logs("waits") == "came\n"
