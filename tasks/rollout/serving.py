"""Renders what serves a release: its Deployment, and the Services that point at one. Pure but for reading templates."""

import functools
import json
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from tasks.contracts.base import sha256_of
from tasks.contracts.errors import InputError
from tasks.contracts.release import Release
from tasks.contracts.site import PodShape, Site
from tasks.contracts.spec import ReleaseSpec

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
MODEL_LABEL, RELEASE_LABEL = "slipway.dev/model", "slipway.dev/release"
MANIFEST = "slipway.dev/manifest-sha256"
"""Annotation: digest of what was rendered, by which a changed manifest is told from one that stands already."""
GPU_RESOURCE, GPU_PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
EXIT_TIMEOUT_S = 30
PRE_STOP_S = 5
"""Time for every proxy to stop sending connections before Triton stops to take them."""
SPARE_S = 10
SHARED_MEMORY = "1Gi"  # Triton's Python backend keeps requests in /dev/shm; a container's own is 64 MiB

Document = dict[str, Any]


def deployment(release: Release, release_uri: str, site: Site, templates: Path) -> list[Document]:
    """What runs the release: its Deployment, named after it, and with several replicas a PodDisruptionBudget.

    Raises:
        InputError: the site lacks the shape, the image or the GPUs that the release needs.
    """
    spec = release.spec
    shape = _shape(spec, site)
    image = spec.serving.image or site.images.serving.get(spec.engine.kind)
    if image is None:
        raise InputError(
            f"site {site.name} names no serving image for engine {spec.engine.kind}. Add "
            f"images.serving.{spec.engine.kind} to the site file or serving.image to the spec."
        )
    values = {
        "name": release.id,
        "namespace": site.kubernetes.serving_namespace,
        "model": spec.name,
        "release_uri": release_uri,
        "commit": release.plan.source.commit,
        "engine": spec.engine.kind,
        "replicas": spec.serving.replicas.min,
        "image": image,
        "bind_address": site.serving.bind_address,
        "ports": PORTS,
        "shape": shape.model_dump(mode="json", exclude_none=True),
        "devices": {GPU_RESOURCE: str(shape.gpus)} if spec.engine.gpu else {},
        "shared_memory": SHARED_MEMORY,
        "credentials_secret": site.object_store.credentials_secret,
        "exit_timeout_s": EXIT_TIMEOUT_S,
        "pre_stop_s": PRE_STOP_S,
        "grace_s": PRE_STOP_S + EXIT_TIMEOUT_S + SPARE_S,
        "ready_timeout_s": spec.serving.ready_timeout_s,
    }
    documents = _rendered(templates, "deployment.yaml.j2", values)
    for document in documents:
        document["metadata"].setdefault("annotations", {})[MANIFEST] = sha256_of(document)
    return documents


def service(release_id: str, spec: ReleaseSpec, site: Site, templates: Path, *, candidate: bool) -> list[Document]:
    """The model's live Service as `spec` exposes it, or its candidate's, selecting one release."""
    balanced = spec.serving.exposure == "load-balancer" and not candidate
    values = {
        "name": f"{spec.name}-candidate" if candidate else spec.name,
        "namespace": site.kubernetes.serving_namespace,
        "model": spec.name,
        "release": release_id,
        "ports": PORTS,
        "role": "candidate" if candidate else "live",
        "type": "LoadBalancer" if balanced else "ClusterIP",
    }
    return _rendered(templates, "service.yaml.j2", values)


def _shape(spec: ReleaseSpec, site: Site) -> PodShape:
    """The site's serving shape; of an engine that needs GPUs its gpu shape, on nodes of that product."""
    name = "gpu" if spec.engine.gpu else site.serving.shape
    shape = {str(known): shape for known, shape in site.shapes.items()}.get(name)
    if shape is None:
        raise InputError(
            f"site {site.name} has the shapes {', '.join(sorted(site.shapes))}; serving needs {name}. "
            f"Add shapes.{name} to the site file."
        )
    if spec.engine.gpu is None:
        return shape
    ranks = spec.engine.tensor_parallel * spec.engine.pipeline_parallel
    product = site.gpus.get(spec.engine.gpu)
    if product is None or ranks > product.per_node:
        has = f"{product.per_node} {spec.engine.gpu} on a node" if product else f"no {spec.engine.gpu}"
        raise InputError(
            f"{spec.name} is served by {ranks} GPUs of one node, site {site.name} has {has}. Choose another GPU or "
            "fewer ranks: one release over several nodes needs a LeaderWorkerSet, which is not there yet."
        )
    selector = {**shape.node_selector, GPU_PRODUCT: spec.engine.gpu}
    return shape.model_copy(update={"gpus": ranks, "node_selector": selector})


def _rendered(templates: Path, name: str, values: dict[str, Any]) -> list[Document]:
    """Every value is written as JSON, which YAML contains, so that none can become structure."""
    try:
        text = _environment(templates).get_template(name).render(values)
    except TemplateError as error:
        raise InputError(f"template {name}: {error}; it is given {', '.join(sorted(values))}. Mend it.") from error
    return [_unshared(document) for document in yaml.safe_load_all(text) if document]


@functools.cache
def _environment(templates: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - YAML, and every value passes tojson
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "default": _not_json}
    return environment


def _not_json(value: Any) -> Any:
    """An undefined value names itself as it is printed; anything else that is no JSON has no place in a manifest."""
    raise TypeError(f"{value} is no JSON")


def _unshared(document: Any) -> Any:
    """Without the parts that YAML anchors share, so that a change to one place stays there."""
    return json.loads(json.dumps(document))
