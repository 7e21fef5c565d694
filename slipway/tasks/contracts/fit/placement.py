"""What pods run on: shapes of a site, GPUs of a product, and what several nodes ask of a release. Pure."""

from dataclasses import dataclass
from math import ceil

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.gpu_nodes import SPOT_TAINT
from slipway.tasks.contracts.site.site import Gpu, PodShape, Site, Toleration, quantity
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.step_names import Step

MIB = 2**20
GPU_RESOURCE, GPU_PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
EFA_RESOURCE = "vpc.amazonaws.com/efa"
SITE_SHAPE = "small"
"""Shape of steps that belong to no release."""
MAX_MULTINODE_NAME_CHARS = 37
"""A StatefulSet's pods carry `<its name>-<hash of 10>` as a label of at most 63 characters, and LeaderWorkerSet names
the workers' one `<release id>-<replica>`; a release id is 13 characters longer than the model's name."""
MAX_MULTINODE_REPLICAS = 10
"""More would make that name longer."""


@dataclass(frozen=True)
class GpuProduct:
    """A GPU product and the site's facts about it."""

    name: str
    """The value of the node's label nvidia.com/gpu.product."""
    facts: Gpu


@dataclass(frozen=True)
class Placement:
    """What one replica of a server runs on."""

    image: str
    shape: PodShape
    """Shape of each pod; its `gpus` and `node_selector` are per pod."""
    ranks: int
    """GPUs of all its pods together."""
    nodes: int = 1
    efa: int = 0
    """Elastic Fabric Adapters of each pod."""

    @property
    def devices(self) -> dict[str, str]:
        """Extended resources of each pod."""
        counts = {GPU_RESOURCE: self.shape.gpus, EFA_RESOURCE: self.efa}
        return {name: str(count) for name, count in counts.items() if count}


@dataclass(frozen=True)
class StepPod:
    """What a step's pod runs on."""

    image: str
    shape: PodShape
    """Its `gpus` and `node_selector` are those of the pod."""


def site_step(step: Step, site: Site) -> StepPod:
    """What the pod of a step of the whole site runs on.

    Raises:
        InputError: the site lacks the shape `small`.
    """
    return StepPod(site.images.tasks, shape_of(site, SITE_SHAPE, step))


def shape_of(site: Site, name: str, user: str) -> PodShape:
    """The site's shape of that name.

    Raises:
        InputError: it has none, which `user` needs.
    """
    shape = site.shapes.get(name)
    if shape is None:
        raise InputError(
            f"site {site.name} has no shape {name}, which {user} needs",
            found=", ".join(sorted(site.shapes)),
            remedy=f"Add shapes.{name} to the site file.",
        )
    return shape


def on_gpus(shape: PodShape, product: str, gpus: int) -> PodShape:
    """The shape with so many GPUs of the product."""
    return shape.model_copy(update={"gpus": gpus, "node_selector": {**shape.node_selector, GPU_PRODUCT: product}})


def with_memory(shape: PodShape, more_bytes: int) -> PodShape:
    """The shape with this much memory added to what it requests."""
    if not more_bytes:
        return shape
    memory = f"{ceil((quantity(shape.memory) + more_bytes) / MIB)}Mi"
    return shape.model_copy(update={"memory": memory})


def on_spot(shape: PodShape, gpu: GpuProduct) -> PodShape:
    """Let the pod run on spot nodes as well, where Karpenter starts some for its GPU."""
    nodes = gpu.facts.nodes
    if nodes is None or "spot" not in nodes.capacity:
        return shape
    tolerations = (*shape.tolerations, Toleration(key=SPOT_TAINT, effect="NoSchedule"))
    return shape.model_copy(update={"tolerations": tolerations})


def check_one_zone(spec: ReleaseSpec, gpu: GpuProduct) -> None:
    """Refuse several nodes that Karpenter could start in different zones.

    Raises:
        InputError: the product's nodes have no zone, or more than one.
    """
    nodes = gpu.facts.nodes
    if nodes is not None and len(nodes.zones) != 1:
        raise InputError(
            f"{spec.name} is served over several nodes, which Karpenter could start in different zones",
            found=f"zones of gpus.{gpu.name}.nodes: {', '.join(nodes.zones) or 'all'}",
            expected="one zone",
            remedy="Name one zone there, the one of the placement group if there is one.",
        )


def check_multinode_names(spec: ReleaseSpec) -> None:
    """Refuse a release over several nodes whose pods could not be labelled.

    Raises:
        InputError: the name or the number of replicas.
    """
    name, replicas = spec.name, spec.serving.replicas.max
    if len(name) > MAX_MULTINODE_NAME_CHARS or replicas > MAX_MULTINODE_REPLICAS:
        raise InputError(
            f"{name} is served over several nodes, and its pods' labels would be too long for Kubernetes",
            found=f"a name of {len(name)} characters and {replicas} replicas",
            expected=f"at most {MAX_MULTINODE_NAME_CHARS} characters and {MAX_MULTINODE_REPLICAS} replicas",
            remedy="Shorten the name, or lower serving.replicas.",
        )
