"""What a namespace's Pod Security level, quotas and limit ranges admit, with Kubernetes' messages."""

import json

import pytest
from kubernetes import client

from .server import wait_for

LEVEL = "pod-security.kubernetes.io/enforce"
SAFE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def label(space, **labels):
    space.core.patch_namespace(space.name, {"metadata": {"labels": labels}})


@pytest.fixture
def restricted(space):
    label(space, **{LEVEL: "restricted"})
    return space


def refused(space, name="demo", **container):
    """What the API answers to a pod; empty when it takes it."""
    try:
        space.run(name, "import time; time.sleep(600)", container=container)
    except client.ApiException as error:
        status = json.loads(error.body)
        assert (status["code"], status["reason"]) == (403, "Forbidden")
        return status["message"].removeprefix(f'pods "{name}" is forbidden: ')
    return ""


def test_a_restricted_namespace_refuses_a_pod_that_says_nothing_with_every_reason(restricted):
    assert refused(restricted) == (
        'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "base" must set '
        "securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "
        '"base" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "base" '
        "must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "
        '"base" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )


def test_a_restricted_namespace_takes_a_pod_that_gives_up_what_it_must(restricted):
    assert refused(restricted, securityContext=SAFE) == ""


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"runAsUser": 0}, 'runAsUser=0 (container "base" must not set runAsUser=0)'),
        (
            {"runAsNonRoot": False},
            'runAsNonRoot != true (container "base" must not set securityContext.runAsNonRoot=false)',
        ),
        (
            {"capabilities": {"drop": ["ALL"], "add": ["SYS_TIME", "CHOWN"]}},
            (
                'unrestricted capabilities (container "base" must not include "CHOWN", "SYS_TIME" in '
                "securityContext.capabilities.add)"
            ),
        ),
        (
            {"seccompProfile": {"type": "Unconfined"}},
            'seccompProfile (container "base" must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
        (
            {"procMount": "Unmasked"},
            'procMount (container "base" must not set securityContext.procMount to "Unmasked")',
        ),
        (
            {"seLinuxOptions": {"type": "spc_t", "user": "root"}},
            (
                'seLinuxOptions (container "base" set forbidden securityContext.seLinuxOptions: type "spc_t"; '
                "user may not be set)"
            ),
        ),
        (
            {"appArmorProfile": {"type": "Unconfined"}},
            'forbidden AppArmor profile (container "base" must not set AppArmor profile type to "Unconfined")',
        ),
    ],
)
def test_each_setting_that_a_restricted_namespace_forbids_is_named(restricted, context, said):
    assert refused(restricted, securityContext=SAFE | context) == f'violates PodSecurity "restricted:latest": {said}'


def test_a_probe_of_another_host_is_forbidden(restricted):
    probe = {"httpGet": {"host": "elsewhere", "port": 80}}

    assert "probe or lifecycle host" in refused(restricted, securityContext=SAFE, readinessProbe=probe)


def test_init_containers_are_judged_with_the_others(restricted):
    body = restricted.pod_body("demo", "pass", container={"securityContext": SAFE})
    body["spec"]["initContainers"] = [{"name": "first", "image": "test/python:1", "command": ["true"]}]

    with pytest.raises(client.ApiException) as error:
        restricted.core.create_namespaced_pod(restricted.name, body)

    assert (
        'container "first" must set securityContext.allowPrivilegeEscalation=false'
        in json.loads(error.value.body)["message"]
    )


def test_baseline_takes_what_says_nothing_and_refuses_more_capabilities(space):
    label(space, **{LEVEL: "baseline"})

    said = refused(space, securityContext={"capabilities": {"add": ["SYS_TIME"]}})

    assert said == (
        'violates PodSecurity "baseline:latest": non-default capabilities (container "base" must not include '
        '"SYS_TIME" in securityContext.capabilities.add)'
    )
    assert refused(space, "plain") == ""


def test_a_level_that_does_not_exist_is_invalid(space):
    with pytest.raises(client.ApiException) as error:
        label(space, **{LEVEL: "strict"})

    assert (error.value.status, "must be one of privileged, baseline, restricted" in error.value.body) == (422, True)


def test_pods_of_a_deployment_are_refused_and_the_client_is_warned(restricted, until):
    label(restricted, **{"pod-security.kubernetes.io/warn": "restricted"})
    container = {"name": "web", "image": "test/python:1", "command": ["true"]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    text = json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})

    applied = restricted.kubectl("apply", "-f", "-", text=text)

    def failure():
        events = restricted.core.list_namespaced_event(restricted.name).items
        return [event.message for event in events if event.reason == "FailedCreate"]

    assert 'Warning: would violate PodSecurity "restricted:latest"' in applied.stderr
    assert 'is forbidden: violates PodSecurity "restricted:latest"' in until(failure)[0]


def quota(space, **hard):
    hard = {key.replace("_", "."): value for key, value in hard.items()}
    space.core.create_namespaced_resource_quota(space.name, {"metadata": {"name": "small"}, "spec": {"hard": hard}})


def used(space):
    return space.core.read_namespaced_resource_quota("small", space.name).status.used


def test_a_quota_refuses_the_pod_that_exceeds_it_and_says_what_is_used(space):
    quota(space, requests_memory="1Gi", requests_cpu="1500m")
    resources = {"requests": {"memory": "600Mi", "cpu": "1"}}

    first, second = (refused(space, name, resources=resources) for name in ("one", "two"))

    assert first == ""
    assert second == (
        "exceeded quota: small, requested: requests.cpu=1,requests.memory=600Mi, "
        "used: requests.cpu=1,requests.memory=600Mi, limited: requests.cpu=1500m,requests.memory=1Gi"
    )


def test_a_pod_that_has_ended_uses_nothing(space, until, tmp_path):
    quota(space, pods="1")
    space.run("one", wait_for(tmp_path / "go"))
    second = refused(space, "two")
    (tmp_path / "go").touch()
    space.finished("one")

    assert second == "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"
    assert refused(space, "three") == ""
    assert until(lambda: used(space)) == {"pods": "1"}


def test_a_quota_of_memory_requires_every_container_to_say_how_much(space):
    quota(space, limits_memory="1Gi", requests_memory="1Gi")

    assert refused(space) == "failed quota: small: must specify limits.memory for: base; requests.memory for: base"


def test_a_limit_that_is_given_alone_is_requested_too(space):
    quota(space, requests_memory="1Gi")

    assert refused(space, resources={"limits": {"memory": "256Mi"}}) == ""
    assert used(space) == {"requests.memory": "256Mi"}


def test_objects_are_counted(space):
    quota(space, configmaps="1", **{"count/deployments.apps": "0"})
    space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "one"}})

    with pytest.raises(client.ApiException) as error:
        space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "two"}})

    assert json.loads(error.value.body)["message"] == (
        'configmaps "two" is forbidden: exceeded quota: small, requested: configmaps=1, used: configmaps=1, '
        "limited: configmaps=1"
    )


def test_a_quota_that_cannot_be_counted_is_refused(space):
    with pytest.raises(client.ApiException) as error:
        quota(space, services_loadbalancers="1")

    assert (error.value.status, "does not count it" in error.value.body) == (422, True)


def limits(space, **limit):
    body = {"metadata": {"name": "bounds"}, "spec": {"limits": [{"type": "Container", **limit}]}}
    space.core.create_namespaced_limit_range(space.name, body)


def test_a_container_that_requests_nothing_gets_the_defaults_and_the_pod_says_so(space):
    limits(space, defaultRequest={"cpu": "250m", "memory": "512Mi"}, default={"memory": "1Gi"})

    pod = space.run("demo", "pass", container={"resources": {"requests": {"cpu": "1"}}})

    resources = pod.spec.containers[0].resources
    assert (resources.requests, resources.limits) == ({"cpu": "1", "memory": "512Mi"}, {"memory": "1Gi"})
    assert pod.metadata.annotations["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: memory request for container base; memory limit for container base"
    )


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        (
            {"limits": {"memory": "3Gi"}, "requests": {"memory": "1Gi"}},
            "maximum memory usage per Container is 2Gi, but limit is 3Gi",
        ),
        (
            {"limits": {"memory": "1Gi"}, "requests": {"memory": "64Mi"}},
            "minimum memory usage per Container is 128Mi, but request is 64Mi",
        ),
    ],
)
def test_what_lies_outside_of_the_bounds_is_refused(space, resources, said):
    limits(space, min={"memory": "128Mi"}, max={"memory": "2Gi"})

    assert refused(space, resources=resources) == said


def test_a_pod_needs_its_service_account(space):
    with pytest.raises(client.ApiException) as error:
        space.run("demo", "pass", serviceAccountName="nobody")

    assert json.loads(error.value.body)["message"] == (
        f'pods "demo" is forbidden: error looking up service account {space.name}/nobody: serviceaccount "nobody" not found'
    )


def told_of(space, namespace):
    event = {
        "metadata": {"name": "told.1", "namespace": space.name},
        "involvedObject": {"kind": "Pod", "name": "demo", "namespace": namespace},
        "reason": "Told",
    }
    return space.core.create_namespaced_event(space.name, event)


def test_an_event_is_about_an_object_of_its_own_namespace(space):
    assert told_of(space, space.name).reason == "Told"

    with pytest.raises(client.ApiException, match="does not match event") as refusal:
        told_of(space, "another")
    assert refusal.value.status == 422
