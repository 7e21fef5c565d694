"""What `slipway setup` leaves in a cluster when the site file changes."""

import pytest
import yaml
from kubernetes import client, config

from slipway.tasks.adapters.site_setup import set_up
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.site import Site
from tests.local.stand_in_cluster import CONTEXT
from tests.support.paths import REPOSITORY

PRIVATE = {"endpoint": "https://hub.corp.example", "networks": ["10.20.0.0/16"]}
CREATED = "bucket slipway (created)"


class NewBucket:
    """An object store that has no bucket yet."""

    def ensure_bucket(self):
        return True


@pytest.fixture
def namespace(site):
    return site.kubernetes.serving_namespace


@pytest.fixture
def setup(cluster, namespace):
    """Prepare the namespace for a site with this Hub; the lines that are printed."""

    def prepare(hub):
        text = (REPOSITORY / "sites" / "kind.yaml").read_text()
        document = yaml.safe_load(text) | {
            "kubernetes": {"pipeline_namespace": namespace, "serving_namespace": namespace},
            "object_store": {"bucket": "slipway"},
            "hub": hub,
        }
        return set_up(read_contract(Site, document, "site.yaml"), text, cluster, NewBucket(), {})

    return prepare


@pytest.fixture
def policies(server):
    return client.NetworkingV1Api(config.new_client_from_config(str(server.kubeconfig), context=CONTEXT))


def names(policies, namespace):
    return [item.metadata.name for item in policies.list_namespaced_network_policy(namespace).items]


def test_the_policies_of_a_private_hub_are_gone_once_the_site_has_a_public_one(policies, namespace, setup):
    first = setup(PRIVATE)
    opened = names(policies, namespace)

    second = setup({})

    both = [f"NetworkPolicy {namespace}/{name}" for name in ("site-datasets", "site-hub")]
    assert opened == ["site-datasets", "site-hub"]
    assert set(both) <= set(first)
    assert names(policies, namespace) == []
    assert sorted(second[-3:-1]) == [f"{policy} (removed)" for policy in both]
    assert second[-1] == CREATED


def test_a_policy_of_the_cluster_s_own_stays(policies, namespace, setup):
    own = {"metadata": {"name": "own"}, "spec": {"podSelector": {}, "policyTypes": ["Egress"]}}
    policies.create_namespaced_network_policy(namespace, own)

    setup({})

    assert names(policies, namespace) == ["own"]
