"""Patches, conflicts, dry runs, owners and what is refused."""

import json

import pytest
from kubernetes import client

GROWN = {"items": [{"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu"}}]}
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {"name": "one", "image": "test/python:1", "env": [{"name": "A", "value": "1"}]},
                    {"name": "two", "image": "test/python:1"},
                ]
            },
        },
    },
}


def patch(space, path, body, content_type):
    return space.cluster.ask(path, "PATCH", body, content_type)


def test_a_strategic_patch_merges_containers_and_variables_by_name(space):
    space.apps.create_namespaced_deployment(space.name, DEPLOYMENT)
    change = {"name": "one", "env": [{"name": "B", "value": "2"}]}

    patched = space.apps.patch_namespaced_deployment(
        "web", space.name, {"spec": {"template": {"spec": {"containers": [change]}}}}
    )

    one, two = patched.spec.template.spec.containers
    assert ([entry.name for entry in one.env], two.name) == (["A", "B"], "two")


def test_a_strategic_patch_deletes_by_directive(space):
    space.apps.create_namespaced_deployment(space.name, DEPLOYMENT)
    gone = {"name": "two", "$patch": "delete"}

    patched = space.apps.patch_namespaced_deployment(
        "web", space.name, {"spec": {"template": {"spec": {"containers": [gone]}}}}
    )

    assert [container.name for container in patched.spec.template.spec.containers] == ["one"]


def test_a_merge_patch_removes_what_is_null(space):
    space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}})

    _, patched = patch(
        space,
        f"/api/v1/namespaces/{space.name}/configmaps/m",
        {"data": {"a": None, "c": "3"}},
        "application/merge-patch+json",
    )

    assert patched["data"] == {"b": "2", "c": "3"}


def test_a_json_patch_tests_before_it_changes(space):
    space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    path = f"/api/v1/namespaces/{space.name}/configmaps/m"
    change = {"op": "replace", "path": "/data/a", "value": "2"}

    operations = [{"op": "test", "path": "/data/a", "value": "1"}, change]

    first, patched = patch(space, path, operations, "application/json-patch+json")
    second, _ = patch(space, path, operations, "application/json-patch+json")

    assert (first, patched["data"], second) == (200, {"a": "2"}, 400)


def test_two_holders_of_a_lease_cannot_both_win(space):
    leases = client.CoordinationV1Api(space.cluster.api_client)
    leases.create_namespaced_lease(space.name, {"metadata": {"name": "lock"}, "spec": {"holderIdentity": "nobody"}})
    first = leases.read_namespaced_lease("lock", space.name)
    second = leases.read_namespaced_lease("lock", space.name)

    first.spec.holder_identity = "first"
    leases.replace_namespaced_lease("lock", space.name, first)
    second.spec.holder_identity = "second"
    with pytest.raises(client.ApiException) as caught:
        leases.replace_namespaced_lease("lock", space.name, second)

    assert (caught.value.status, json.loads(caught.value.body)["reason"]) == (409, "Conflict")
    assert leases.read_namespaced_lease("lock", space.name).spec.holder_identity == "first"


def test_a_name_is_taken_once(space):
    space.core.create_namespaced_secret(space.name, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})

    with pytest.raises(client.ApiException) as caught:
        space.core.create_namespaced_secret(space.name, {"metadata": {"name": "s"}})

    assert (caught.value.status, json.loads(caught.value.body)["reason"]) == (409, "AlreadyExists")


def test_a_missing_namespace_takes_nothing(cluster):
    with pytest.raises(client.ApiException) as caught:
        cluster.core.create_namespaced_config_map("nowhere", {"metadata": {"name": "m"}})

    assert (caught.value.status, json.loads(caught.value.body)["message"]) == (404, 'namespaces "nowhere" not found')


def test_generated_names_differ(space):
    names = {
        space.core.create_namespaced_config_map(space.name, {"metadata": {"generateName": "m-"}}).metadata.name
        for _ in range(3)
    }

    assert len(names) == 3
    assert all(name.startswith("m-") for name in names)


def test_a_dry_run_stores_nothing(space):
    space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "m"}}, dry_run="All")

    assert "m" not in [item.metadata.name for item in space.core.list_namespaced_config_map(space.name).items]


def test_what_an_object_owns_goes_with_it(space):
    owner = space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    space.core.create_namespaced_secret(space.name, {"metadata": {"name": "owned", "ownerReferences": [reference]}})

    space.core.delete_namespaced_config_map("owner", space.name)

    assert "owned" not in [item.metadata.name for item in space.core.list_namespaced_secret(space.name).items]


def test_a_deleted_namespace_takes_its_objects_along(cluster, space_in, until):
    space = space_in(cluster, "short-lived")
    space.run("sleeper", "import time; time.sleep(60)")

    cluster.core.delete_namespace("short-lived")

    until(lambda: "short-lived" not in [item.metadata.name for item in cluster.core.list_namespace().items])
    assert cluster.core.list_pod_for_all_namespaces(field_selector="metadata.name=sleeper").items == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"container": {"resources": {"limits": {"gpu": "1"}}}}, "this cluster has no gpu"),
        ({"container": {"resources": {"requests": {"nvidia.com/gpu": "1"}}}}, "Limit must be set"),
        ({"container": {"resources": {"limits": {"nvidia.com/gpu": "0.5"}}}}, "must be an integer"),
        ({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}, "this cluster has no hostPath volumes"),
        ({"volumes": [{"name": "v", "downwardAPI": GROWN}]}, "downwardAPI.items[0].resourceFieldRef"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"downwardAPI": GROWN}]}}]}, "items[0].resourceFieldRef"),
        ({"volumes": [{"name": "v", "downwardAPI": {"items": [{"path": "x"}]}}]}, "items[0].fieldRef"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s", "items": [{"key": "k"}]}}]}, "items[0].path"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s", "defaultMode": 4095}}]}, "secret.defaultMode"),
        ({"volumes": [{"name": "v", "projected": {"defaultMode": -1, "sources": []}}]}, "projected.defaultMode"),
        ({"hostNetwork": True}, "spec.hostNetwork"),
        ({"hostname": "web"}, "status.podIP"),
        ({"subdomain": "web"}, "no DNS"),
        ({"setHostnameAsFQDN": True}, "spec.setHostnameAsFQDN"),
        ({"dnsConfig": {"searches": ["example.org"]}}, "spec.dnsConfig"),
        ({"dnsPolicy": "None"}, "spec.dnsPolicy"),
        ({"nodeName": "gpu-1"}, "one node, test-node"),
        ({"resources": {"limits": {"memory": "1Gi"}}}, "give each container its own"),
        ({"container": {"tty": True}}, "containers[0].tty"),
        ({"container": {"lifecycle": {"stopSignal": "SIGINT"}}}, "lifecycle.stopSignal"),
        (
            {"container": {"livenessProbe": {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 1}}},
            "livenessProbe.terminationGracePeriodSeconds",
        ),
        ({"container": {"securityContext": {"privileged": True}}}, "no privileged containers"),
        ({"container": {"volumeMounts": [{"name": "missing", "mountPath": "/x"}]}}, "Not found"),
        ({"container": {"name": "airflow-xcom-sidecar"}}, "do_xcom_push=False"),
        ({"metadata": {"labels": {"a": "no good label!"}}}, "metadata.labels"),
    ],
)
def test_a_pod_that_could_not_be_what_it_asks_for_is_refused(space, change, said):
    with pytest.raises(client.ApiException) as caught:
        space.run("refused", "pass", **change)

    status = json.loads(caught.value.body)
    assert (caught.value.status, status["reason"]) == (422, "Invalid")
    assert said in status["message"]


def test_a_deployment_of_impossible_pods_is_refused_itself(space):
    body = json.loads(json.dumps(DEPLOYMENT))
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"gpu": "1"}}

    with pytest.raises(client.ApiException) as caught:
        space.apps.create_namespaced_deployment(space.name, body)

    assert (caught.value.status, "no gpu" in caught.value.body) == (422, True)


def test_a_pod_of_an_unknown_service_account_is_forbidden(space):
    with pytest.raises(client.ApiException) as caught:
        space.run("refused", "pass", serviceAccountName="nobody")

    assert caught.value.status == 403


def test_exec_is_answered_with_a_status(space):
    space.run("sleeper", "import time; time.sleep(60)")

    with pytest.raises(client.ApiException) as caught:
        space.core.connect_post_namespaced_pod_exec("sleeper", space.name, command="sh")

    assert (caught.value.status, json.loads(caught.value.body)["kind"]) == (405, "Status")
