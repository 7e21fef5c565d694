"""The nodes of a GPU product: which instances Karpenter may start for it, and the checks that they fit the site. Pure.

A pod selects its GPU by the label nvidia.com/gpu.product, which only exists on a node that runs. Karpenter starts a
node for a label that it does not know only if a NodePool promises it (Requirements.Compatible in
pkg/scheduling/requirements.go of kubernetes-sigs/karpenter, 2266468), and starts none for a pod that no instance type
has room for. Both would leave the pod pending forever, so they are checked here, before anything is applied.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.engine.engine_kinds import EngineKind
from slipway.tasks.contracts.engine.gpu_instances import GPU_INSTANCES, KARPENTER_NAMES
from slipway.tasks.contracts.kubernetes_text import LabelValue

SPOT_TAINT = "slipway.dev/spot"
"""Taint of spot nodes besides that of the GPU: steps tolerate it, and servers where the site says so."""
KARPENTER_VERSION = "1.14.1"

InstanceType = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$", max_length=63)]
Zone = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$", max_length=63)]
Reservation = Annotated[str, StringConstraints(pattern=r"^cr-[0-9a-z]+$", max_length=63)]
AwsName = Annotated[str, StringConstraints(pattern=r"^[\w+=,.@-]+$", max_length=128)]
Tag = Annotated[str, StringConstraints(pattern=r"^[\w .:/=+@-]+$", max_length=128)]


class GpuNodes(UserDocument):
    """The instances that Karpenter starts for one GPU product."""

    instance_types: tuple[InstanceType, ...] = Field(min_length=1, max_length=20)
    capacity: tuple[Literal["on-demand", "spot", "reserved"], ...] = Field(
        default=("on-demand",), min_length=1, max_length=3, description="how instances may be paid for"
    )
    zones: tuple[Zone, ...] = Field(
        default=(),
        max_length=10,
        description="availability zones; all of the subnets when empty. One for several nodes",
    )
    max_gpus: int = Field(ge=1, le=100_000, description="GPUs that may run at once, each capacity counted separately")
    placement_group: AwsName | None = Field(default=None, description="name of a cluster placement group, for EFA")
    reservations: tuple[Reservation, ...] = Field(
        default=(), max_length=20, description="capacity reservations of capacity reserved"
    )

    @model_validator(mode="after")
    def _reserved_capacity_has_reservations(self) -> Self:
        if ("reserved" in self.capacity) != bool(self.reservations):
            raise ValueError("capacity reserved and reservations go together: name both or none")
        return self


class Karpenter(UserDocument):
    """What Karpenter needs for every GPU product, and how it keeps nodes."""

    node_role: AwsName = Field(description="IAM role of the nodes")
    discovery: dict[Tag, Tag] = Field(
        min_length=1,
        max_length=10,
        description="tags of the subnets and security groups, {karpenter.sh/discovery: NAME}",
    )
    ami: str = Field(
        pattern=r"^al2023@v[0-9]{8}$",
        description="alias of the EKS optimized AMI, pinned: al2023@v20260724. It includes the GPU driver",
    )
    idle_min: int = Field(
        default=10, ge=1, le=1440, description="minutes that a node stays after its last pod: the next step may need it"
    )
    parallel_pull: bool = Field(
        default=True, description="pull and unpack the layers of an image at once (SOCI; AWS calls it experimental)"
    )
    prepull: tuple[EngineKind, ...] = Field(
        default=(), description="engine kinds whose serving images every GPU node has, before a pod needs them"
    )


class NodeFacts(UserDocument):
    """What the checks need of a product and of the shape of its pods."""

    product: LabelValue
    per_node: int
    efa: int
    cpu_m: float
    memory_mib: float
    scratch_gb: float


def problems(nodes: GpuNodes, facts: NodeFacts) -> Iterator[str]:
    """Why Karpenter would start no nodes for the product's pods, or nodes that do not fit; nothing where it would."""
    instances = {name: GPU_INSTANCES[name] for name in nodes.instance_types if name in GPU_INSTANCES}
    for name in nodes.instance_types:
        if name not in instances:
            yield f"{name} is not an x86-64 instance type with whole NVIDIA GPUs in Karpenter {KARPENTER_VERSION}"
    expected = KARPENTER_NAMES.get(facts.product)
    for name, instance in instances.items():
        if expected and (instance.gpu, instance.gpu_memory_mib) != expected:
            yield f"{name} has {instance.gpu} with {instance.gpu_memory_mib} MiB, and {facts.product} is {expected[0]}"
        if instance.gpus != facts.per_node:
            yield f"{name} has {instance.gpus} GPUs, per_node is {facts.per_node}"
        if instance.efa < facts.efa:
            yield f"{name} has {instance.efa} Elastic Fabric Adapters, efa is {facts.efa}"
    if instances and not any(_fits(name, facts) for name in instances):
        room = ", ".join(
            f"{name} {each.cpu_m / 1000:.1f} CPU, {each.memory_mib} Mi, {each.nvme_gb}G"
            for name, each in instances.items()
        )
        yield (
            f"no instance type has room for shapes.gpu ({facts.cpu_m / 1000:g} CPU, {facts.memory_mib:.0f} Mi, "
            f"{facts.scratch_gb:.0f}G of scratch): {room}"
        )
    if facts.efa and len(nodes.zones) != 1:
        yield f"efa needs one zone, because EFA does not cross zones; there are {len(nodes.zones) or 'all'}"


def _fits(name: str, facts: NodeFacts) -> bool:
    instance = GPU_INSTANCES[name]
    return (
        facts.cpu_m <= instance.cpu_m
        and facts.memory_mib <= instance.memory_mib
        and facts.scratch_gb <= EPHEMERAL_SHARE * instance.nvme_gb
    )


EPHEMERAL_SHARE = 0.9
"""The kubelet evicts pods when less than 10 % of the disk is left, which Karpenter subtracts."""
