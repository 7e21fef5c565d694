"""Renders what serves a release: its workload, and the Services that point at one. Pure but for reading templates.

One GPU or none: a Deployment whose container is tritonserver. Several GPUs of a node: the same, and the container of a
trt-engine is mpirun with one server per GPU; llmapi and vllm start their ranks themselves. More GPUs than a node has: a
LeaderWorkerSet, whose leader starts mpirun over all its pods. A group: see tasks/rollout/groups.py.
"""

import functools
import json
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from tasks.adapters.workload_state import DEPLOYMENT, LEADER_WORKER_SET
from tasks.contracts.base import sha256_of
from tasks.contracts.errors import InputError
from tasks.contracts.release import Release
from tasks.contracts.site import Site
from tasks.contracts.spec import ReleaseSpec
from tasks.rollout import launch
from tasks.rollout.launch import PORTS, Server
from tasks.rollout.placement import GPU_PRODUCT, GPU_RESOURCE, Placement, placed

__all__ = ["GPU_PRODUCT", "GPU_RESOURCE", "MANIFEST", "PORTS", "deployment", "service"]

MODEL_LABEL, RELEASE_LABEL = "slipway.dev/model", "slipway.dev/release"
NAME_LABEL, ENGINE_LABEL = "app.kubernetes.io/name", "slipway.dev/engine"
WORKER_LABEL = "slipway.dev/worker-of"
"""On pods that hold ranks of a release and answer nobody."""
OWN_LABELS = {"app.kubernetes.io/managed-by": "slipway"}
MANIFEST = "slipway.dev/manifest-sha256"
"""Annotation: digest of what was rendered, by which a changed manifest is told from one that stands already."""
WORKLOADS = (DEPLOYMENT, LEADER_WORKER_SET)
"""Kinds that a release's workload may have; both are named after the release."""
PRE_STOP_S = 5
"""Time for every proxy to stop sending connections before Triton stops to take them."""
UNLOAD_S = 10
"""Of Triton's --exit-timeout-secs, after the answers under way: models are unloaded within it too."""
SPARE_S = 10
SHARED_MEMORY_GIB = 1  # Triton's Python backend keeps requests in /dev/shm; a container's own is 64 MiB
SHARED_MEMORY_GIB_PER_RANK = 2  # and ranks exchange tensors there (NCCL's and MPI's shared-memory transports)
NCCL = {"NCCL_DEBUG": "WARN", "NCCL_IGNORE_DISABLED_P2P": "1"}
"""Environment of servers with several GPUs: say why a connection fails; GPUs without peer access use shared memory."""
EFA = {"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"}
"""Environment of servers over nodes with EFA; huge pages would have to be reserved on the nodes."""

Document = dict[str, Any]


def deployment(release: Release, release_uri: str, site: Site, templates: Path) -> list[Document]:
    """What runs the release: its workload, named after it, and with several replicas a PodDisruptionBudget.

    Raises:
        InputError: the site lacks the shape, the image or the GPUs that the release needs.
    """
    spec = release.spec
    if spec.serving.group is not None:
        raise InputError(
            f"{spec.name} is served in group {spec.serving.group}, whose server holds the group's other models too; "
            "rendering it needs their releases. Remove serving.group to give the model a server of its own."
        )
    where = placed(spec, site)
    selector = selector_of(spec.name, release.id)
    labels = {**OWN_LABELS, NAME_LABEL: spec.name, ENGINE_LABEL: spec.engine.kind}
    values = {
        "name": release.id,
        "labels": {**labels, **selector},
        "worker_labels": {**labels, WORKER_LABEL: release.id},
        "selector": selector,
        "annotations": {"slipway.dev/release-uri": release_uri, "slipway.dev/commit": release.plan.source.commit},
        "replicas": spec.serving.replicas.min,
        "image": image_of(spec, site, where),
        "ready_timeout_s": spec.serving.ready_timeout_s,
        # the model itself, for a server is ready before its model can answer
        "ready_path": f"/v2/models/{spec.name}/ready",
        "fetched": [{"name": "fetch-repository", "release_uri": release_uri}],
        **_running(spec, site, where),
        **pod_values(site, where),
    }
    template = "leaderworkerset.yaml.j2" if where.nodes > 1 else "deployment.yaml.j2"
    return workload(templates, template, values)


def selector_of(model: str, release_id: str) -> dict[str, str]:
    """Labels of the pods that answer for a release with a server of its own."""
    return {MODEL_LABEL: model, RELEASE_LABEL: release_id}


def service(release_id: str, spec: ReleaseSpec, site: Site, templates: Path, *, candidate: bool) -> list[Document]:
    """The model's live Service as `spec` exposes it, or its candidate's, selecting one release."""
    return service_selecting(selector_of(spec.name, release_id), spec, site, templates, candidate=candidate)


def service_selecting(
    selector: dict[str, str], spec: ReleaseSpec, site: Site, templates: Path, *, candidate: bool
) -> list[Document]:
    """As `service`, of pods that other labels tell apart."""
    balanced = spec.serving.exposure == "load-balancer" and not candidate
    values = {
        "name": f"{spec.name}-candidate" if candidate else spec.name,
        "namespace": site.kubernetes.serving_namespace,
        "model": spec.name,
        "selector": selector,
        "ports": PORTS,
        "role": "candidate" if candidate else "live",
        "type": "LoadBalancer" if balanced else "ClusterIP",
    }
    return _rendered(templates, "service.yaml.j2", values)


def image_of(spec: ReleaseSpec, site: Site, where: Placement) -> str:
    """What the serving pods run. Over nodes the site's own alone: its workers are sshd, which plan says to a spec.

    Raises:
        InputError: neither spec nor site names one.
    """
    if where.nodes > 1:
        if site.images.multinode is None:
            raise InputError(
                f"site {site.name} names no image for servers over nodes. Add images.multinode to the site file."
            )
        return site.images.multinode
    image = spec.serving.image or site.images.serving.get(spec.engine.kind)
    if image is None:
        raise InputError(
            f"site {site.name} names no serving image for engine {spec.engine.kind}. Add "
            f"images.serving.{spec.engine.kind} to the site file or serving.image to the spec."
        )
    return image


def pod_values(site: Site, where: Placement) -> dict[str, Any]:
    """Template values that follow from the place alone."""
    return {
        "namespace": site.kubernetes.serving_namespace,
        "bind_address": site.serving.bind_address,
        "ports": PORTS,
        "shape": where.shape.model_dump(mode="json", exclude_none=True),
        "devices": where.devices,
        "shared_memory": f"{SHARED_MEMORY_GIB + SHARED_MEMORY_GIB_PER_RANK * _neighbours(where)}Gi",
        "environment": {**(NCCL if where.ranks > 1 else {}), **(EFA if where.efa else {})},
        "credentials_secret": site.object_store.credentials_secret,
    }


def _running(spec: ReleaseSpec, site: Site, where: Placement) -> dict[str, Any]:
    """What the server's container runs, and how long it is given to end.

    mpirun passes SIGTERM on to every rank, and a rank that ends takes the answers under way with it. So with several
    ranks requests finish before the signal, while preStop sleeps; a single server drains by itself after it.
    """
    alone = Server(site.serving.bind_address, exit_timeout_s(spec.drain_s), "$(POD_NAME)")
    server = launch.server_of(spec, where.ranks, alone)
    ranked = server.ranked_model is not None
    pre_stop_s = PRE_STOP_S + (spec.drain_s if ranked else 0)
    end_s = launch.end_s(where.nodes) if ranked else server.exit_timeout_s
    values: dict[str, Any] = {"pre_stop_s": pre_stop_s, "grace_s": pre_stop_s + end_s + SPARE_S}
    if where.nodes > 1:
        return values | {
            "nodes": where.nodes,
            "ranks_per_node": where.shape.gpus,
            "exit_timeout_s": server.exit_timeout_s,
            "mpi_secret": site.serving.mpi_secret,
            "launch_port": launch.SSH_PORT,
            "ranked_model": server.ranked_model,
        }
    return values | {"drain_s": spec.drain_s, "command": launch.in_a_pod(server, where.ranks)}


def exit_timeout_s(drain_s: int) -> int:
    """What Triton is given to end, where answers under way may take `drain_s`."""
    return drain_s + UNLOAD_S


def _neighbours(where: Placement) -> int:
    return where.shape.gpus if where.ranks > 1 else 0


def workload(templates: Path, name: str, values: dict[str, Any]) -> list[Document]:
    """Documents of a workload, each with the digest of what was rendered."""
    documents = _rendered(templates, name, values)
    for document in documents:
        document["metadata"].setdefault("annotations", {})[MANIFEST] = sha256_of(document)
    return documents


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
