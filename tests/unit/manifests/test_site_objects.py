"""What `slipway setup` creates of a site file: valid objects, and a way to every private endpoint and no further."""

import ipaddress

import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.fit.site_objects import HUB_STEPS, credentials_secrets, site_objects
from slipway.tasks.contracts.site.site import Site
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_yaml
from tests.unit.manifests.objects import named

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "canary"}


def site(hub=None, store=None, mlflow=None):
    text = (REPOSITORY / "sites" / "kind.yaml").read_text()
    document = load_yaml(text) | ({"hub": hub} if hub else {}) | ({"mlflow": mlflow} if mlflow else {})
    document["object_store"] = store or {"bucket": "slipway", "credentials_secret": "slipway-s3"}
    return read_contract(Site, document, "kind.yaml"), text


def policies(**endpoints):
    """Egress by (namespace, policy): address ranges and port."""
    found = {}
    for item in site_objects(*site(**endpoints)):
        if item["kind"] == "NetworkPolicy":
            (rule,), metadata = item["spec"]["egress"], item["metadata"]
            ranges = [peer["ipBlock"]["cidr"] for peer in rule["to"]]
            found[metadata["namespace"], metadata["name"]] = (ranges, rule["ports"][0]["port"])
    return found


def test_pods_of_both_namespaces_read_the_file_as_it_is():
    document, text = site()

    maps = [item for item in site_objects(document, text) if item["kind"] == "ConfigMap"]

    assert {item["metadata"]["namespace"] for item in maps} == {"slipway", "slipway-serving"}
    assert all(item["metadata"]["name"] == "slipway-site" for item in maps)
    assert all(item["data"] == {"site.yaml": text} for item in maps)


def test_public_endpoints_need_no_policy_beside_the_base():
    assert policies() == {}


def test_a_hub_in_a_private_range_is_reachable_by_the_steps_that_talk_to_it_alone():
    opened = policies(hub={"endpoint": "https://hub.corp.example:8443", "networks": ["10.20.0.0/16", "10.30.1.7"]})
    policy, datasets = [
        item
        for item in site_objects(*site(hub={"endpoint": "https://hub.corp.example", "networks": ["10.20.0.0/16"]}))
        if item["kind"] == "NetworkPolicy"
    ]

    ranges = (["10.20.0.0/16", "10.30.1.7/32"], 8443)
    assert opened == {("slipway", "site-hub"): ranges, ("slipway", "site-datasets"): ranges}
    assert datasets["spec"]["podSelector"] == named("NetworkPolicy", "datasets")["spec"]["podSelector"]
    base = named("NetworkPolicy", "hub")["spec"]
    assert policy["spec"]["podSelector"] == base["podSelector"]
    assert base["podSelector"]["matchExpressions"][0]["values"] == list(HUB_STEPS)


def test_the_base_policy_alone_would_block_that_hub():
    (rule,) = named("NetworkPolicy", "hub")["spec"]["egress"]
    (block,) = (peer["ipBlock"] for peer in rule["to"])

    assert any(ipaddress.ip_address("10.20.3.4") in ipaddress.ip_network(cidr) for cidr in block["except"])


def test_an_object_store_on_a_port_of_its_own_is_reachable_from_steps_and_servers():
    store = {"bucket": "slipway", "endpoint": "http://minio.corp.example:7480", "networks": ["192.168.7.0/24"]}

    assert policies(store=store) == {
        ("slipway", "site-object-store"): (["192.168.7.0/24"], 7480),
        ("slipway-serving", "site-object-store"): (["192.168.7.0/24"], 7480),
    }


def test_mlflows_server_at_a_private_address_is_reachable_from_plan():
    assert policies(mlflow={"endpoint": "http://10.250.0.7:5000"}) == {
        ("slipway", "site-mlflow"): (["10.250.0.7/32"], 5000)
    }


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("http://10.250.0.1:9001", (["10.250.0.1/32"], 9001)),
        ("http://[fd00::1]:9001", (["fd00::1/128"], 9001)),
        ("https://10.250.0.1", (["10.250.0.1/32"], 443)),
        ("http://10.250.0.1", (["10.250.0.1/32"], 80)),
    ],
)
def test_an_endpoint_given_as_an_address_is_its_own_range(endpoint, expected):
    assert policies(hub={"endpoint": endpoint}) == {
        ("slipway", "site-hub"): expected,
        ("slipway", "site-datasets"): expected,
    }


@pytest.mark.parametrize("name", ["local", "kind", "compose", "eks"])
def test_every_object_of_a_shipped_site_is_valid(name):
    text = (REPOSITORY / "sites" / f"{name}.yaml").read_text()
    document = read_contract(Site, load_yaml(text), name)

    for item in [*site_objects(document, text), *credentials_secrets(document, KEYS)]:
        if "karpenter" not in item["apiVersion"]:  # those are validated in test_gpu_nodes.py
            validate(item)


def test_a_range_that_is_none_is_refused():
    with refused(what="hub.networks"):
        site(hub={"endpoint": "https://hub.corp.example", "networks": ["10.0.0.0/33"]})


def test_credentials_become_secrets_of_both_namespaces_where_the_site_names_one():
    made = credentials_secrets(site()[0], KEYS)

    assert {item["metadata"]["namespace"] for item in made} == {"slipway", "slipway-serving"}
    assert all(item["stringData"] == KEYS for item in made)
    assert credentials_secrets(site(store={"bucket": "slipway"})[0], KEYS) == []
    assert credentials_secrets(site()[0], {"AWS_ACCESS_KEY_ID": "id"}) == []
