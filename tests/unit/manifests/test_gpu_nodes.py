"""Karpenter's objects for the GPUs of a site: valid, and made for the pods that will be pending."""

import copy
import re

import jsonschema
import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.engine.gpu_instances import GPU_INSTANCES
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.node_objects import node_objects
from slipway.tasks.contracts.fit.resolution import ResolvedRelease, resolve
from slipway.tasks.contracts.fit.site_objects import site_objects
from slipway.tasks.contracts.site.site import Site
from tests.contracts.recorded import check_object, contract
from tests.fakes.documents.eks_site import eks
from tests.fakes.releases import SPEC, spec
from tests.support.kubernetes_schemas import validate
from tests.support.refused import refused
from tests.support.yaml_documents import load_yaml
from tests.unit.manifests.objects import MANIFESTS, violations

RECORDS = {"NodePool": "karpenter_nodepool.json", "EC2NodeClass": "karpenter_ec2nodeclass.json"}
L4, A10G, H100 = "NVIDIA-L4", "NVIDIA-A10G", "NVIDIA-H100-80GB-HBM3"


def site(change=lambda document: None):
    document = copy.deepcopy(eks())
    change(document)
    return read_contract(Site, document, "eks.yaml")


def nodes(product, **changes):
    """The shipped site with other nodes for a product."""
    return site(lambda document: document["gpus"][product]["nodes"].update(changes))


def pools(found):
    return {item["metadata"]["name"]: item["spec"] for item in node_objects(found) if item["kind"] == "NodePool"}


def on(product, found, kind="llmapi", tensor=1, pipeline=1):
    engine = {**SPEC["engine"], "kind": kind, "gpu": product, "tensor_parallel": tensor, "pipeline_parallel": pipeline}
    return ResolvedRelease(spec(engine=engine, quantization={"format": "none"}), found)


def everything():
    """A site that uses every field."""

    def change(document):
        document["gpus"][H100] |= {"efa": 32}
        document["gpus"][H100]["nodes"] |= {
            "capacity": ["reserved", "on-demand", "spot"],
            "zones": ["us-west-2b"],
            "placement_group": "slipway",
        }
        document["nodes"] |= {"prepull": ["llmapi", "vllm"], "idle_min": 20}

    return site(change)


@pytest.mark.parametrize("found", [site(), everything()], ids=["shipped", "every field"])
def test_every_object_follows_the_schema_of_its_kind(found):
    objects = node_objects(found)

    for item in objects:
        if item["kind"] in RECORDS:
            recorded = contract(RECORDS[item["kind"]])
            assert item["apiVersion"] == f"{recorded['group']}/{recorded['served']}"
            check_object(item, recorded["openAPIV3Schema"])
        else:
            validate(item)
    assert {item["kind"] for item in objects} >= set(RECORDS)
    assert objects == [item for item in site_objects(found, "") if item in objects]


@pytest.mark.parametrize("field", ["placmentGroupSelector", "instanceStorePolicies"])
def test_a_field_that_karpenter_lacks_is_noticed(field):
    [item, *_] = [each for each in node_objects(site()) if each["kind"] == "EC2NodeClass"]

    with pytest.raises(jsonschema.ValidationError):
        check_object(item | {"spec": item["spec"] | {field: "x"}}, contract(RECORDS["EC2NodeClass"])["openAPIV3Schema"])


def accepts(pool, shape):
    """What Karpenter asks of a pod: its labels are promised, its taints tolerated, an instance has its GPUs."""
    template, promised = (
        pool["template"],
        {each["key"]: each["values"] for each in pool["template"]["spec"]["requirements"]},
    )
    labels = template["metadata"]["labels"]
    tolerated = {each.key for each in shape.tolerations}
    return (
        all(labels.get(key) == value or value in promised.get(key, ()) for key, value in shape.node_selector.items())
        and all(taint["key"] in tolerated for taint in template["spec"]["taints"])
        and any(GPU_INSTANCES[name].gpus >= shape.gpus for name in promised["node.kubernetes.io/instance-type"])
    )


@pytest.mark.parametrize(("product", "tensor"), [(L4, 1), (A10G, 4), (H100, 8)])
def test_karpenter_starts_a_node_for_the_pods_of_each_product_and_of_no_other(product, tensor):
    found = site()
    server, step = (
        on(product, found, tensor=tensor).serving.shape,
        on(product, found, tensor=tensor).step("assemble").shape,
    )

    lasting = f"slipway-{product.lower()}"
    assert [name for name, pool in pools(found).items() if accepts(pool, server)] == [lasting]
    spot = [f"{lasting}-spot"] if product == L4 else []
    assert [name for name, pool in pools(found).items() if accepts(pool, step)] == [lasting, *spot]


def test_servers_run_on_spot_nodes_only_where_the_site_says_so():
    allowed = site(lambda document: document.update(serving={"spot": True}))

    keys = [{each.key for each in on(L4, found).serving.shape.tolerations} for found in (site(), allowed)]

    assert keys == [{"nvidia.com/gpu"}, {"nvidia.com/gpu", "slipway.dev/spot"}]


def test_only_empty_nodes_are_removed_and_none_is_moved_or_expires():
    for pool in pools(everything()).values():
        assert pool["disruption"] == {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "20m",
            "budgets": [
                {"nodes": "100%", "reasons": ["Empty"]},
                {"nodes": "0", "reasons": ["Drifted", "Underutilized"]},
            ],
        }
        assert pool["template"]["spec"]["expireAfter"] == "Never"
        assert pool["limits"] == {"nvidia.com/gpu": pool["limits"]["nvidia.com/gpu"]}


def test_images_are_pulled_by_pods_without_a_gpu_that_hold_no_node():
    found = everything()
    pullers = [item for item in node_objects(found) if item["kind"] == "DaemonSet"]

    assert {item["metadata"]["name"] for item in pullers} == {"slipway-image-llmapi", "slipway-image-vllm"}
    for item in pullers:
        pod = item["spec"]["template"]["spec"]
        assert violations(pod) == []
        assert pod["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
        assert {each["key"] for each in pod["tolerations"]} == {"nvidia.com/gpu", "slipway.dev/spot"}
        [container] = pod["containers"]
        assert container["image"] in found.images.serving.values()
        assert "nvidia.com/gpu" not in container["resources"]["limits"]
        assert "karpenter.sh/do-not-disrupt" not in item["spec"]["template"]["metadata"].get("annotations", {})


def test_a_site_without_karpenter_has_none_of_its_objects():
    def without(document):
        document.pop("nodes")
        for gpu in document["gpus"].values():
            gpu.pop("nodes")

    assert node_objects(site(without)) == []


@pytest.mark.parametrize(
    ("product", "changes", "why"),
    [
        (L4, {"instance_types": ["g6.2xlarge"]}, r"no instance type has room for shapes.gpu .*g6.2xlarge 7.9 CPU, 29317 Mi"),
        (L4, {"instance_types": ["g6.12xlarge"]}, "g6.12xlarge has 4 GPUs, per_node is 1"),
        (L4, {"instance_types": ["g5.16xlarge"]}, "g5.16xlarge has a10g with 22888 MiB, and NVIDIA-L4 is l4"),
        (L4, {"instance_types": ["g6.16xlrge"]}, "g6.16xlrge is not an x86-64 instance type"),
        (L4, {"capacity": ["reserved"]}, "capacity reserved and reservations go together"),
        (H100, {"capacity": ["on-demand"]}, "capacity reserved and reservations go together"),
        (L4, {"zones": ["us-west-2"]}, "zones"),
    ],
)  # fmt: skip
def test_nodes_that_would_never_start_or_not_fit_are_refused(product, changes, why):
    with pytest.raises(InputError) as caught:
        nodes(product, **changes)

    assert re.search(why, caught.value.what)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda document: document["gpus"][H100].update(efa=32), "efa needs one zone"),
        (lambda document: document["gpus"][A10G].update(efa=4), "g5.12xlarge has 1 Elastic Fabric Adapters, efa is 4"),
        (lambda document: document["shapes"]["gpu"].update(memory="256Gi"), "no instance type has room"),
        (lambda document: document["shapes"]["gpu"].update(scratch="2Ti"), "no instance type has room"),
        (lambda document: document["shapes"]["gpu"].pop("tolerations"), "taint nvidia.com/gpu:NoSchedule"),
        (lambda document: document.pop("nodes"), "needs the field nodes"),
    ],
)
def test_a_site_whose_parts_do_not_fit_each_other_is_refused(change, why):
    with refused(what=why):
        site(change)


def test_a_server_over_several_nodes_needs_one_zone():
    two_zones = nodes(A10G, zones=["us-west-2a", "us-west-2b"])
    over_nodes = on(A10G, two_zones, kind="trt-engine", tensor=4, pipeline=2)

    with refused(what="could start in different zones", found="us-west-2a, us-west-2b"):
        resolve(over_nodes.spec, two_zones)
    assert on(A10G, site(), kind="trt-engine", tensor=4, pipeline=2).serving.nodes == 2


def test_the_device_plugins_tolerate_every_taint_that_pools_have():
    taints = {taint["key"] for pool in pools(everything()).values() for taint in pool["template"]["spec"]["taints"]}

    for file in (MANIFESTS / "gpu-nodes").glob("*.values.yaml"):
        tolerated = {each["key"] for each in load_yaml(file.read_text())["tolerations"]}
        assert taints <= tolerated, file.name
