"""`slipway setup` removes node pools that the site file no longer names, once they have no nodes."""

import copy

import pytest

from slipway.tasks.adapters.kube.node_pools import remove_unnamed
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.node_objects import node_objects
from slipway.tasks.contracts.site.site import Site
from tests.fakes.clock import ManualClock
from tests.fakes.documents.eks_site import eks
from tests.fakes.kube.cluster import MemoryCluster

L4 = "slipway-nvidia-l4"


def site(name="eks", without=()):
    document = copy.deepcopy(eks()) | {"name": name}
    document["nodes"] |= {"prepull": [] if without else ["llmapi"]}
    document["gpus"] = {product: gpu for product, gpu in document["gpus"].items() if product not in without}
    return read_contract(Site, document, "site.yaml")


@pytest.fixture
def cluster():
    """A cluster that was set up for the whole site."""
    made = MemoryCluster(ManualClock())
    made.apply(node_objects(site()))
    return made


def node_of(cluster, pool):
    labels = {"karpenter.sh/nodepool": pool}
    cluster.apply([{"kind": "NodeClaim", "metadata": {"name": f"{pool}-x", "labels": labels}}])


def removed(cluster, found):
    """The lines, and which objects are gone."""
    before = set(cluster.objects)
    lines = remove_unnamed(found, node_objects(found), cluster)
    return lines, before - set(cluster.objects)


def test_what_the_site_names_stays(cluster):
    assert removed(cluster, site()) == ([], set())


def test_a_pool_without_nodes_goes_with_its_class_and_what_pulls_images(cluster):
    lines, gone = removed(cluster, site(without=["NVIDIA-L4"]))

    assert ("NodePool", L4) in gone
    assert ("EC2NodeClass", L4) in gone
    assert {name for kind, name in gone if kind == "DaemonSet"} == {"slipway-image-llmapi"}
    assert {name for _, name in gone} <= {L4, f"{L4}-spot", "slipway-image-llmapi"}
    assert f"NodePool {L4} (removed)" in lines
    assert len(lines) == len(gone)


def test_a_pool_with_a_node_stays_with_its_class_and_the_line_says_why(cluster):
    node_of(cluster, L4)

    lines, gone = removed(cluster, site(without=["NVIDIA-L4"]))

    assert not {("NodePool", L4), ("EC2NodeClass", L4)} & gone
    (kept,) = [line for line in lines if "is kept" in line]
    assert "1 of its nodes run, " in kept
    assert f"kubectl delete nodepool {L4}" in kept


def test_pools_of_another_site_stay(cluster):
    assert removed(cluster, site("other", without=["NVIDIA-L4"])) == ([], set())


def test_a_person_who_may_not_list_pools_is_told_so(cluster):
    class Denied(MemoryCluster):
        def find(self, kind, labels, *, namespace=None):
            raise InputError("NodePool list: the cluster does not allow it")

    (line,) = remove_unnamed(site(), [], Denied(ManualClock()))

    assert line.startswith("NodePools that the site file no longer names were not looked for: NodePool list")
