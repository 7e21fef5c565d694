"""What the Kubernetes client raises, as Slipway's errors."""

import json

import pytest
from kubernetes import client

from slipway.tasks.adapters.kube.kube_errors import MissingError, translated
from slipway.tasks.contracts.errors import InputError, UnavailableError

# words of Kubernetes 1.36
FULL = (
    'services "demo" is forbidden: exceeded quota: site, requested: services=1, used: services=5, limited: services=5'
)
DENIED = 'admission webhook "policy.example.com" denied the request: no label team'
CANNOT = 'admission webhook "policy.example.com" denied the request: images cannot use the tag latest'
POLICY = (
    "deployments.apps \"demo\" is forbidden: ValidatingAdmissionPolicy 'no-latest' with binding 'all' denied request: "
    "images cannot use latest"
)
WRONG = 'Service "demo" is invalid: spec.ports[0].port: Invalid value: 0'
NO_ROLE = 'leases.coordination.k8s.io is forbidden: User "someone" cannot get resource "leases" in API group ""'
# the answer of Kubernetes 1.36 to an apply in a namespace that is not there
NO_NAMESPACE = {"kind": "Status", "status": "Failure", "message": 'namespaces "slipway" not found', "code": 404}


def test_a_missing_namespace_is_named_with_the_command_that_makes_it():
    error = client.ApiException(status=404)
    error.body = json.dumps(NO_NAMESPACE)

    with pytest.raises(MissingError) as caught, translated("ConfigMap slipway-site"):
        raise error

    assert caught.value.what == "ConfigMap slipway-site: the cluster has no namespace slipway"
    assert "kubectl apply -k k8s_manifests/overlays/" in caught.value.remedy


def denied(message, status=403):
    error = client.ApiException(status=status)
    error.body = json.dumps({"kind": "Status", "status": "Failure", "message": message, "code": status})
    with translated("Service slipway-serving/demo"):
        raise error


def test_a_quota_that_is_full_may_have_room_later():
    with pytest.raises(UnavailableError, match="a quota has no room for it") as caught:
        denied(FULL)

    assert "exceeded quota: site" in str(caught.value)
    assert caught.value.remedy == "Raise that ResourceQuota, or run fewer releases at once."


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (DENIED, "exception for namespace slipway-serving"),
        (CANNOT, "exception for namespace slipway-serving"),
        (POLICY, "ValidatingAdmissionPolicy no-latest forbids it: ask those who wrote it for an exception"),
        (NO_ROLE, "Check the service account's Role."),
    ],
)
@pytest.mark.parametrize("status", [400, 403, 422])
def test_what_a_cluster_denies_is_not_tried_again_and_names_who_denies_it(message, remedy, status):
    with pytest.raises(InputError) as caught:
        denied(message, status)

    assert message in str(caught.value)
    assert remedy in caught.value.remedy


def test_a_wrong_field_is_named_as_before():
    with pytest.raises(InputError) as caught:
        denied(WRONG, 422)

    assert caught.value.remedy.startswith("Correct the field that it names")


def test_a_cluster_that_is_away_is_told_without_the_client_s_words():
    configuration = client.Configuration()
    configuration.host, configuration.retries = "http://127.0.0.1:9", False
    api = client.CoreV1Api(client.ApiClient(configuration))

    with pytest.raises(UnavailableError) as caught, translated("Service demo"):
        api.read_namespaced_service("demo", "slipway-serving")

    assert caught.value.what == "Service demo: the cluster does not answer (connection refused)"
    assert "kubeconfig" not in str(caught.value)
    assert "HTTP" not in str(caught.value)
