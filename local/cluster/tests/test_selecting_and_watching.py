"""LIST and WATCH: selectors, versions, time limits."""

import itertools
import threading

import pytest
from kubernetes import client, watch


def config_map(name, labels=None, **data):
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=web", {"a", "b"}),
        ("tier==web,env!=prod", {"b"}),
        ("env in (prod,test)", {"a", "b"}),
        ("env notin (prod)", {"b", "c"}),
        ("env", {"a", "b"}),
        ("!env", {"c"}),
        ("tier!=web", {"c"}),
    ],
)
def test_label_selectors_choose_what_kubernetes_chooses(space, selector, expected):
    space.core.create_namespaced_config_map(space.name, config_map("a", {"tier": "web", "env": "prod"}))
    space.core.create_namespaced_config_map(space.name, config_map("b", {"tier": "web", "env": "test"}))
    space.core.create_namespaced_config_map(space.name, config_map("c", {"tier": "db"}))

    selected = space.core.list_namespaced_config_map(space.name, label_selector=selector)

    assert {item.metadata.name for item in selected.items} == expected


def test_field_selectors_choose_by_name_and_by_phase(space):
    space.run("fails", "raise SystemExit(3)")
    space.run("works", "pass")
    space.finished("fails")
    space.finished("works")

    failed = space.core.list_namespaced_pod(space.name, field_selector="status.phase=Failed")
    others = space.core.list_namespaced_pod(space.name, field_selector="metadata.name!=fails")

    assert [pod.metadata.name for pod in failed.items] == ["fails"]
    assert [pod.metadata.name for pod in others.items] == ["works"]


def test_a_selector_nobody_can_read_is_a_bad_request(space):
    with pytest.raises(client.ApiException) as caught:
        space.core.list_namespaced_pod(space.name, label_selector="a in b")

    assert (caught.value.status, "BadRequest" in caught.value.body) == (400, True)


def test_a_watch_from_a_list_sees_only_what_came_later(space):
    space.core.create_namespaced_config_map(space.name, config_map("early"))
    version = space.core.list_namespaced_config_map(space.name).metadata.resource_version
    space.core.create_namespaced_config_map(space.name, config_map("late"))
    space.core.patch_namespaced_config_map("late", space.name, {"data": {"x": "1"}})
    space.core.delete_namespaced_config_map("late", space.name)

    stream = watch.Watch().stream(
        space.core.list_namespaced_config_map, space.name, resource_version=version, timeout_seconds=60
    )

    assert [(event["type"], event["object"].metadata.name) for event in itertools.islice(stream, 3)] == [
        ("ADDED", "late"),
        ("MODIFIED", "late"),
        ("DELETED", "late"),
    ]


def test_an_object_that_loses_its_label_is_deleted_for_the_watch(space):
    space.core.create_namespaced_config_map(space.name, config_map("one", {"seen": "yes"}))
    version = space.core.list_namespaced_config_map(space.name).metadata.resource_version
    later = config_map("two", {"seen": "yes"})

    def change():
        space.core.patch_namespaced_config_map("one", space.name, {"metadata": {"labels": {"seen": "no"}}})
        space.core.create_namespaced_config_map(space.name, later)

    threading.Timer(0.2, change).start()
    stream = watch.Watch().stream(
        space.core.list_namespaced_config_map,
        space.name,
        label_selector="seen=yes",
        resource_version=version,
        timeout_seconds=60,
    )

    assert [(event["type"], event["object"].metadata.name) for event in itertools.islice(stream, 2)] == [
        ("DELETED", "one"),
        ("ADDED", "two"),
    ]


def test_events_of_one_pod_are_found_by_field(space):
    space.run("noisy", "pass")
    space.finished("noisy")

    events = space.core.list_namespaced_event(space.name, field_selector="involvedObject.name=noisy").items

    assert {"Scheduled", "Pulled", "Created", "Started"} <= {event.reason for event in events}
