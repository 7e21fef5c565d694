"""The cluster that KUBECONFIG and SLIPWAY_SITE name together, else an embedded one with the manifests applied."""

import os
from pathlib import Path

import pytest
from kubernetes import client, config

from slipway.tasks.adapters.kube.kube import Cluster
from tests.fakes.workspace import site as site_of
from tests.local.rights.grants import granting_objects
from tests.local.stand_in_cluster import CONTEXT, Server

NAMED = ("KUBECONFIG", "SLIPWAY_SITE")


@pytest.fixture(scope="package")
def api(tmp_path_factory):
    """A client with every right."""
    if all(os.environ.get(name) for name in NAMED):
        yield config.new_client_from_config(os.environ["KUBECONFIG"])
        return
    server = Server(tmp_path_factory.mktemp("rights"))
    try:
        site = site_of(kubernetes={"context": CONTEXT, "serving_namespace": "slipway-serving"})
        Cluster.connect(site, kubeconfig=Path(server.kubeconfig)).apply(granting_objects())
        yield config.new_client_from_config(str(server.kubeconfig), context=CONTEXT)
    finally:
        server.stop()


@pytest.fixture
def token_of(api):
    """A token of a service account."""

    def request(namespace, name):
        made = client.CoreV1Api(api).create_namespaced_service_account_token(name, namespace, {"spec": {}})
        return made.status.token

    return request


@pytest.fixture
def standing_in(api):
    """Makes an account that has a role of slipway-serving and no other, until the test ends."""
    core, rbac, made = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api), []

    def stand_in(role):
        name, namespace = f"{role['name']}-test", "slipway-serving"
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}
        made.append((name, namespace))
        core.create_namespaced_service_account(namespace, {"metadata": {"name": name}})
        rbac.create_namespaced_role_binding(namespace, binding)
        return namespace, name

    yield stand_in
    for name, namespace in made:
        rbac.delete_namespaced_role_binding(name, namespace)
        core.delete_namespaced_service_account(name, namespace)
