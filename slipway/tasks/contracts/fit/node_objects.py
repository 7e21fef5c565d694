"""Karpenter's objects for the GPUs of a site, and the DaemonSets that pull images beforehand. Pure.

Field names are those of karpenter.sh/v1 and karpenter.k8s.aws/v1 in aws/karpenter-provider-aws v1.14.1, whose schemas
are in tests/contracts.
"""

import re
from collections.abc import Sequence
from typing import Any

from slipway.tasks.contracts.fit.placement import GPU_PRODUCT, GPU_RESOURCE
from slipway.tasks.contracts.site.gpu_nodes import SPOT_TAINT, GpuNodes, Karpenter
from slipway.tasks.contracts.site.site import Gpu, Site

Document = dict[str, Any]
"""A Kubernetes object as JSON."""

MANAGED = {"app.kubernetes.io/managed-by": "slipway"}
SITE_LABEL = "slipway.dev/site"
"""Label with the name of the site whose file names the object; setup removes only what carries its own."""
GPU_PRESENT = "nvidia.com/gpu.present"
"""The chart of NVIDIA's device plugin starts it on nodes with this label (values.yaml of v0.20.0)."""
GPU_TAINT = {"key": GPU_RESOURCE, "effect": "NoSchedule"}
ROOT_DISK_GIB = 100
"""The instance store holds images and volumes, so the root disk only holds the operating system."""
NODE_CONFIG = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  featureGates:
    FastImagePull: true

--//--
"""
"""Turns on parallel pulls (nodeadm/doc/examples.md of awslabs/amazon-eks-ami v20260724)."""


def node_objects(site: Site) -> list[Document]:
    """NodePools and EC2NodeClasses of the GPUs that have `nodes`, and DaemonSets for `nodes.prepull`."""
    if site.nodes is None:
        return []
    objects = []
    for product, gpu in site.gpus.items():
        if gpu.nodes is not None:
            objects.append(_node_class(product, gpu.nodes, site.nodes, site.name))
            objects += _pools(product, gpu, gpu.nodes, site.nodes)
    objects += _image_pullers(site, site.nodes)
    for item in objects:
        item["metadata"]["labels"] |= made_for(site)
    return objects


def made_for(site: Site) -> dict[str, str]:
    """Labels of the site's own objects. A name that is not a label's value is made one."""
    return {**MANAGED, SITE_LABEL: re.sub(r"[^A-Za-z0-9]+", "-", site.name)[:63].strip("-")}


def _name(product: str) -> str:
    return f"slipway-{product.lower().replace('_', '-').replace('.', '-')}"


def _node_class(product: str, nodes: GpuNodes, karpenter: Karpenter, site_name: str) -> Document:
    spec: Document = {
        "amiSelectorTerms": [{"alias": karpenter.ami}],
        "role": karpenter.node_role,
        "subnetSelectorTerms": [{"tags": karpenter.discovery}],
        "securityGroupSelectorTerms": [{"tags": karpenter.discovery}],
        "instanceStorePolicy": "RAID0",
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {
                    "volumeSize": f"{ROOT_DISK_GIB}Gi",
                    "volumeType": "gp3",
                    "encrypted": True,
                    "deleteOnTermination": True,
                },
            }
        ],
        "tags": {SITE_LABEL: site_name},
    }
    if karpenter.parallel_pull:
        spec["userData"] = NODE_CONFIG
    if nodes.placement_group:
        spec["placementGroupSelector"] = {"name": nodes.placement_group}
    if nodes.reservations:
        spec["capacityReservationSelectorTerms"] = [{"id": each} for each in nodes.reservations]
    metadata = {"name": _name(product), "labels": dict(MANAGED)}
    return {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": metadata, "spec": spec}


def _pools(product: str, gpu: Gpu, nodes: GpuNodes, karpenter: Karpenter) -> list[Document]:
    """One pool for capacity that stays, and one with a taint of its own for spot, which Karpenter tries first."""
    lasting = [each for each in nodes.capacity if each != "spot"]
    pools = [_pool(product, gpu, nodes, karpenter, lasting)] if lasting else []
    if "spot" in nodes.capacity:
        spot = _pool(product, gpu, nodes, karpenter, ["spot"])
        spot["metadata"]["name"] += "-spot"
        spot["spec"]["weight"] = 20
        spot["spec"]["template"]["spec"]["taints"].append({"key": SPOT_TAINT, "effect": "NoSchedule"})
        pools.append(spot)
    return pools


def _pool(product: str, gpu: Gpu, nodes: GpuNodes, karpenter: Karpenter, capacity: Sequence[str]) -> Document:
    requirements = {
        "node.kubernetes.io/instance-type": list(nodes.instance_types),
        "karpenter.sh/capacity-type": list(capacity),
        "karpenter.k8s.aws/instance-gpu-count": [str(gpu.per_node)],
        "kubernetes.io/arch": ["amd64"],
        "kubernetes.io/os": ["linux"],
        **({"topology.kubernetes.io/zone": list(nodes.zones)} if nodes.zones else {}),
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": _name(product), "labels": dict(MANAGED)},
        "spec": {
            "weight": 10,
            "template": {
                # what pods select has to be promised here: it is on no node while there is none
                "metadata": {"labels": {GPU_PRODUCT: product, GPU_PRESENT: "true"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": _name(product)},
                    "taints": [dict(GPU_TAINT)],
                    "requirements": [
                        {"key": key, "operator": "In", "values": values} for key, values in requirements.items()
                    ],
                    "expireAfter": "Never",
                },
            },
            "limits": {GPU_RESOURCE: str(nodes.max_gpus)},
            "disruption": {
                # empty nodes alone: a pod that quantizes or serves is never moved to save money
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": f"{karpenter.idle_min}m",
                "budgets": [
                    {"nodes": "100%", "reasons": ["Empty"]},
                    {"nodes": "0", "reasons": ["Drifted", "Underutilized"]},
                ],
            },
        },
    }


def _image_pullers(site: Site, karpenter: Karpenter) -> list[Document]:
    images = {site.images.serving[kind]: kind for kind in karpenter.prepull if kind in site.images.serving}
    return [_image_puller(site, image, kind) for image, kind in images.items()]


def _image_puller(site: Site, image: str, kind: str) -> Document:
    """A DaemonSet whose pods only sleep in the image. As long as they do, the kubelet does not delete it either."""
    labels = {"slipway.dev/pulls-image-of": kind}
    shape = site.shapes.get("gpu")
    tolerations = [each.model_dump(exclude_none=True) for each in (shape.tolerations if shape else ())]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": f"slipway-image-{kind}",
            "namespace": site.kubernetes.pipeline_namespace,
            "labels": {**MANAGED, **labels},
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": {**MANAGED, **labels}},
                "spec": {
                    "nodeSelector": {GPU_PRESENT: "true"},
                    "tolerations": [*tolerations, {"key": SPOT_TAINT, "operator": "Exists", "effect": "NoSchedule"}],
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 0,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 10001,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "image",
                            "image": image,
                            "command": ["sleep", "infinity"],
                            "resources": {
                                "requests": {"cpu": "1m", "memory": "8Mi"},
                                "limits": {"memory": "32Mi"},
                            },
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "readOnlyRootFilesystem": True,
                                "capabilities": {"drop": ["ALL"]},
                            },
                        }
                    ],
                },
            },
        },
    }
