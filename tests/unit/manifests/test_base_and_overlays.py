"""Namespaces, identities, roles, policies and quotas: valid, complete, and no wider than needed."""

import functools
import ipaddress
import shutil
import subprocess

import jsonschema
import pytest

from slipway.tasks.contracts.fit.site_objects import READS_DATASETS
from slipway.tasks.contracts.step_names import Step
from tests.support.kubernetes_schemas import validate
from tests.support.yaml_documents import load_all_yaml, load_yaml
from tests.unit.manifests.objects import BASE, MANIFESTS, base_objects, listed, named

OVERLAYS = sorted(folder.name for folder in (MANIFESTS / "overlays").iterdir())


@pytest.mark.parametrize("file", listed(), ids=lambda file: file.stem)
def test_every_object_follows_the_schemas_of_kubernetes(file):
    validate(load_yaml(file.read_text()))


def test_the_validator_refuses_a_field_that_kubernetes_does_not_know():
    wrong = named("NetworkPolicy", "hub")
    wrong["spec"]["egres"] = []

    with pytest.raises(jsonschema.ValidationError, match="egres"):
        validate(wrong)


def test_every_file_holds_one_object_and_is_named_after_its_kind():
    for file in listed():
        documents = list(load_all_yaml(file.read_text()))
        assert len(documents) == 1, file.name
        assert file.name.startswith(f"{documents[0]['kind'].lower()}-"), file.name


def test_every_file_is_listed():
    assert {file.name for file in BASE.glob("*.yaml")} == {"kustomization.yaml", *(file.name for file in listed())}


@functools.cache
def rendered(overlay):
    """An overlay's objects as `kubectl apply -k` would send them."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl on this machine")
    done = subprocess.run(
        [kubectl, "kustomize", str(MANIFESTS / "overlays" / overlay)], capture_output=True, text=True, check=True
    )
    return list(load_all_yaml(done.stdout))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_resolves_to_valid_objects(overlay):
    found = rendered(overlay)

    assert len(found) == len(base_objects())
    for item in found:
        validate(item)


def test_on_eks_every_account_has_a_cloud_identity_of_its_own_or_needs_none():
    patches = load_yaml((MANIFESTS / "overlays/eks/kustomization.yaml").read_text())["patches"]
    given = {patch["target"]["name"] for patch in patches if patch["target"]["kind"] == "ServiceAccount"}
    accounts = {item["metadata"]["name"] for item in base_objects() if item["kind"] == "ServiceAccount"}

    assert accounts - given == {"slipway-airflow"}  # its identity is the one of Airflow's own deployment


@pytest.mark.parametrize("name", ["slipway", "slipway-serving"])
def test_a_namespace_admits_restricted_pods_only(name):
    labels = named("Namespace", name)["metadata"]["labels"]

    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("name", ["slipway", "slipway-serving"])
def test_a_namespace_starts_from_no_traffic_at_all(name):
    deny = next(
        item
        for item in base_objects()
        if item["kind"] == "NetworkPolicy" and item["metadata"] == {"name": "default-deny", "namespace": name}
    )

    assert deny["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def internet(policy):
    peers = [peer for rule in policy["spec"].get("egress") or [] for peer in rule.get("to") or [{}]]
    return any(peer.get("ipBlock", {}).get("cidr") == "0.0.0.0/0" or peer == {} for peer in peers)


def test_the_internet_is_reached_only_by_steps_that_read_the_hub():
    steps = {
        step
        for item in base_objects()
        if item["kind"] == "NetworkPolicy" and internet(item)
        for step in item["spec"]["podSelector"].get("matchExpressions", [{"values": ["datasets"]}])[0]["values"]
    }

    assert steps == {"plan", "download", "fetch-adapters", "datasets"}


def test_the_harness_reads_datasets_only_in_pods_that_are_labelled_for_it():
    labels = {"slipway.dev/step": "evaluate"}

    assert not reachable(base_objects(), "slipway", labels, "8.8.8.8", 443)
    assert reachable(base_objects(), "slipway", {**labels, READS_DATASETS: "true"}, "8.8.8.8", 443)
    assert not reachable(base_objects(), "slipway", {**labels, READS_DATASETS: "true"}, METADATA_ADDRESS, 443)
    assert named("NetworkPolicy", "datasets")["spec"]["podSelector"] == {"matchLabels": {READS_DATASETS: "true"}}


def reachable(objects, namespace, labels, address, port):
    """Whether the policies let a pod out to a TCP port of an address."""
    return any(
        {"protocol": "TCP", "port": port} in rule["ports"] and any(covers(peer, address) for peer in rule["to"])
        for item in objects
        if item["kind"] == "NetworkPolicy" and item["metadata"]["namespace"] == namespace
        if "Egress" in item["spec"]["policyTypes"] and selects(item["spec"]["podSelector"], labels)
        for rule in item["spec"].get("egress") or []
    )


def selects(selector, labels):
    operators = {"In": lambda one: labels.get(one["key"]) in one["values"], "Exists": lambda one: one["key"] in labels}
    exact = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and all(operators[one["operator"]](one) for one in selector.get("matchExpressions") or [])


def covers(peer, address):
    block = peer.get("ipBlock", {"cidr": "0.0.0.0/32"})
    wanted = ipaddress.ip_address(address)
    inside = [wanted in ipaddress.ip_network(text) for text in (block["cidr"], *block.get("except", []))]
    return inside[0] and not any(inside[1:])


PODS = [("slipway", {"slipway.dev/step": step}) for step in Step.__args__] + [
    ("slipway-serving", {"slipway.dev/release": "demo-1"})
]
S3_ADDRESS, METADATA_ADDRESS = "52.218.0.1", "169.254.169.254"


@pytest.mark.parametrize(("namespace", "labels"), PODS)
def test_on_eks_every_pod_reaches_s3_and_sts_where_their_addresses_are_public(namespace, labels):
    objects = rendered("eks")

    assert reachable(objects, namespace, labels, S3_ADDRESS, 443)
    assert not reachable(objects, namespace, labels, S3_ADDRESS, 80)
    assert not reachable(objects, namespace, labels, METADATA_ADDRESS, 443)


@pytest.mark.parametrize(("namespace", "labels"), PODS)
def test_elsewhere_a_pod_reaches_an_object_store_of_the_own_network(namespace, labels):
    assert reachable(base_objects(), namespace, labels, "10.1.2.3", 9000)


def test_no_policy_names_a_step_that_does_not_exist():
    named_steps = {
        value
        for item in base_objects()
        if item["kind"] == "NetworkPolicy"
        for expression in item["spec"]["podSelector"].get("matchExpressions") or []
        if expression["key"] == "slipway.dev/step"
        for value in expression["values"]
    }

    assert named_steps <= set(Step.__args__)


def test_no_role_reads_secrets_or_starts_commands_in_pods():
    for role in (item for item in base_objects() if item["kind"] in {"Role", "ClusterRole"}):
        for rule in role["rules"]:
            assert not {"secrets", "pods/exec", "pods/attach", "*"} & set(rule["resources"]), role["metadata"]["name"]
            assert "*" not in rule["verbs"]


def test_every_binding_joins_a_role_and_an_account_that_exist():
    made = {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in base_objects()}
    for binding in (item for item in base_objects() if item["kind"] == "RoleBinding"):
        assert ("Role", binding["metadata"]["namespace"], binding["roleRef"]["name"]) in made
        for subject in (each for each in binding["subjects"] if each["kind"] == "ServiceAccount"):
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in made


def test_no_account_mounts_a_token_unless_its_pod_asks():
    for account in (item for item in base_objects() if item["kind"] == "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False, account["metadata"]["name"]


def test_whoever_touches_only_artifacts_has_no_rights_in_the_cluster():
    bound = {
        subject["name"]
        for item in base_objects()
        if item["kind"] == "RoleBinding"
        for subject in item["subjects"]
        if subject["kind"] == "ServiceAccount"
    }

    assert bound == {"slipway-airflow", "slipway-deployer", "slipway-measurer", "slipway-retention"}


def test_people_are_bound_as_a_group_and_only_to_the_role_for_people():
    groups = {
        (binding["roleRef"]["name"], subject["name"])
        for binding in base_objects()
        if binding["kind"] == "RoleBinding"
        for subject in binding["subjects"]
        if subject["kind"] == "Group"
    }

    assert groups == {("slipway-user", "slipway-users")}


def test_a_measurer_only_looks_up_services():
    assert named("Role", "slipway-measurer")["rules"] == [
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}
    ]
