"""On how many nodes a release is served, and on which GPUs. Pure."""

from dataclasses import dataclass

from tasks.contracts.errors import InputError
from tasks.contracts.site import PodShape, Site
from tasks.contracts.spec import ReleaseSpec

GPU_RESOURCE, GPU_PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
EFA_RESOURCE = "vpc.amazonaws.com/efa"
OVER_NODES = "trt-engine"
MAX_MULTINODE_NAME_CHARS = 37
"""A StatefulSet's pods carry `<its name>-<hash of 10>` as a label of at most 63 characters, and LeaderWorkerSet names
the workers' one `<release id>-<replica>`; a release id is 13 characters longer than the model's name."""
MAX_MULTINODE_REPLICAS = 10
"""More would make that name longer."""


@dataclass(frozen=True)
class Placement:
    """What one replica of a release runs on."""

    shape: PodShape
    """Of each pod; `gpus` are those of a pod."""
    ranks: int
    nodes: int = 1
    efa: int = 0
    """Elastic Fabric Adapters of each pod."""

    @property
    def devices(self) -> dict[str, str]:
        """Extended resources of each pod."""
        wanted = {GPU_RESOURCE: self.shape.gpus, EFA_RESOURCE: self.efa}
        return {name: str(count) for name, count in wanted.items() if count}


def placed(spec: ReleaseSpec, site: Site) -> Placement:
    """Where the spec is served: on the site's serving shape, or with GPUs on nodes of the asked product.

    Raises:
        InputError: the site has no such shape or GPUs, or not in numbers that the ranks can be divided by.
    """
    name = "gpu" if spec.engine.gpu else site.serving.shape
    shape = {str(known): shape for known, shape in site.shapes.items()}.get(name)
    if shape is None:
        raise InputError(
            f"site {site.name} has the shapes {', '.join(sorted(site.shapes))}; serving needs {name}. "
            f"Add shapes.{name} to the site file."
        )
    if spec.engine.gpu is None:
        return Placement(shape, ranks=0)
    ranks = spec.engine.tensor_parallel * spec.engine.pipeline_parallel
    product = site.gpus.get(spec.engine.gpu)
    if product is None:
        raise InputError(
            f"{spec.name} is served by {ranks} {spec.engine.gpu}, site {site.name} has "
            f"{', '.join(sorted(site.gpus)) or 'no GPUs'}. Choose another GPU, or add it to gpus of the site file."
        )
    shape = shape.model_copy(update={"node_selector": {**shape.node_selector, GPU_PRODUCT: spec.engine.gpu}})
    if ranks <= product.per_node:
        return Placement(shape.model_copy(update={"gpus": ranks}), ranks)
    _check_several_nodes(spec, site, ranks)
    nodes = ranks // product.per_node
    return Placement(shape.model_copy(update={"gpus": product.per_node}), ranks, nodes, product.efa)


def _check_several_nodes(spec: ReleaseSpec, site: Site, ranks: int) -> None:
    assert spec.engine.gpu is not None
    per_node = site.gpus[spec.engine.gpu].per_node
    has = f"site {site.name} has {per_node} {spec.engine.gpu} on a node"
    if spec.engine.kind != OVER_NODES:
        raise InputError(
            f"{spec.name} needs {ranks} GPUs, {has}. Over several nodes (a LeaderWorkerSet) only {OVER_NODES} is "
            f"served, {spec.engine.kind} is not. Choose a GPU with more on a node, or fewer ranks."
        )
    if ranks % per_node:
        raise InputError(
            f"{spec.name} needs {ranks} GPUs, {has}: {ranks} is not a whole number of nodes. Make tensor_parallel x "
            f"pipeline_parallel at most {per_node} or a multiple of it."
        )
    if len(spec.name) > MAX_MULTINODE_NAME_CHARS or spec.serving.replicas.max > MAX_MULTINODE_REPLICAS:
        raise InputError(
            f"{spec.name} is served over several nodes: its name may have {MAX_MULTINODE_NAME_CHARS} characters (found "
            f"{len(spec.name)}) and {MAX_MULTINODE_REPLICAS} replicas (found {spec.serving.replicas.max}), or its "
            "pods' labels become too long for Kubernetes."
        )
