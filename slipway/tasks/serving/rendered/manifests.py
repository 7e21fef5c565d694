"""Renders what serves a release: its workload, and the Services that point at one. Pure except for reading templates.

One GPU or none: a Deployment whose container is tritonserver. Several GPUs of a node: the same, and the container of a
trt-engine is mpirun with one server per GPU; llmapi and vllm start their ranks themselves. More GPUs than a node has,
for trt-engine and llmapi: a LeaderWorkerSet, whose leader starts mpirun over all its pods. A group: see groups.py.
"""

from pathlib import Path
from typing import Any, get_args

from slipway.tasks.adapters.kube.workload_state import DEPLOYMENT, LEADER_WORKER_SET
from slipway.tasks.contracts.api_keys import KEYS_VOLUME
from slipway.tasks.contracts.base import sha256_of
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.placement import GPU_PRODUCT, GPU_RESOURCE, Placement
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.kubernetes_text import check_pod_values, container_values
from slipway.tasks.contracts.pods.writes import (
    FRONT,
    MODELS,
    SHARED_MEMORY,
    TEMPORARY,
    WRITES,
    ServingContainer,
    volumes,
)
from slipway.tasks.contracts.site.site import Site, quantity
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.serving.rendered import commands, front, load_balancer
from slipway.tasks.serving.rendered import templates as template_files
from slipway.tasks.serving.rendered.commands import PORTS, TRITON_PORTS, Server
from slipway.tasks.serving.rendered.front_routes import limits_of
from slipway.tasks.serving.rendered.paths import ADAPTERS_ROOT

__all__ = ["GPU_PRODUCT", "GPU_RESOURCE", "MANIFEST", "PORTS", "deployment", "service"]

MODEL_LABEL, RELEASE_LABEL = "slipway.dev/model", "slipway.dev/release"
NAME_LABEL, ENGINE_LABEL = "app.kubernetes.io/name", "slipway.dev/engine"
WORKER_LABEL = "slipway.dev/worker-of"
"""Label of pods that hold ranks of a release but answer no requests."""
OWN_LABELS = {"app.kubernetes.io/managed-by": "slipway"}
MANIFEST = "slipway.dev/manifest-sha256"
"""Annotation with the digest of what was rendered: it tells whether a manifest differs from the one applied."""
RELEASE_URI = "slipway.dev/release-uri"
"""Annotation with the address of a server's release; in a group followed by a dot and a member's name."""
WORKLOADS = (DEPLOYMENT, LEADER_WORKER_SET)
"""Kinds that a release's workload may have; both are named after the release."""
READY = ("python", "-m", "slipway.tasks.serving.pod.ready", f"--port={TRITON_PORTS['http']}")
"""Start of the command that probes models, whose names follow."""
LIVE = (
    *("python", "-m", "slipway.tasks.serving.pod.live"),
    *(f"--port={TRITON_PORTS['http']}", f"--metrics-port={TRITON_PORTS['metrics']}"),
)
"""Start of the command that probes whether the server makes progress."""
STALLED_S, STALLED_DRAINS = 600, 5
"""How long requests may wait while none is answered, before the server counts as hung: that long, and that many times
what a request may take (drain_s). A prompt is read in seconds."""
UNLOAD_S = 10
"""Part of Triton's --exit-timeout-secs in which models are unloaded, after requests in flight."""
SPARE_S = 10
NCCL = {"NCCL_DEBUG": "WARN", "NCCL_IGNORE_DISABLED_P2P": "1"}
"""Environment of servers with several GPUs: say why a connection fails; GPUs without peer access use shared memory."""
EFA = {"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"}
"""Environment of servers over nodes with EFA; huge pages would have to be reserved on the nodes."""

FOLLOWING = {"folder": ADAPTERS_ROOT, "connections": 4, "cpu": "20m", "memory": "128Mi", "memory_limit": "320Mi"}
"""The container that follows the adapters of a live release, for which its server has room. A connection to
the store has a part of 8 MiB in memory."""

Document = dict[str, Any]


def deployment(release: Release, release_uri: str, site: Site, templates: Path) -> list[Document]:
    """Render the release's workload, named after it, and with several replicas a PodDisruptionBudget.

    Raises:
        InputError: the site lacks the shape, the image or the GPUs that the release needs.
    """
    spec = release.spec
    if spec.serving.group is not None:
        raise InputError(
            f"{spec.name} is in group {spec.serving.group}, whose manifest needs the releases of its other models",
            remedy="Remove serving.group to give the model a server of its own.",
        )
    resolved = ResolvedRelease(spec, site)
    where = resolved.serving
    selector = selector_of(spec.name, release.id)
    labels = {**OWN_LABELS, NAME_LABEL: spec.name, ENGINE_LABEL: spec.engine.kind}
    ready_timeout_s = spec.serving.ready_timeout_s + _workers_start_s(site, where)
    values = {
        "name": release.id,
        "labels": {**labels, **selector},
        "worker_labels": {**labels, WORKER_LABEL: release.id},
        "selector": selector,
        "annotations": {RELEASE_URI: release_uri, "slipway.dev/commit": release.plan.source.commit},
        "replicas": spec.serving.replicas.min,
        "most_replicas": most_replicas(spec),
        "max_surge": 0 if spec.rollout.surge == "none" else 1,
        "ready_timeout_s": ready_timeout_s,
        # the model itself, because a server is ready before its model can answer
        "ready_path": f"/v2/models/{spec.name}/ready",
        **probes(spec, ready_timeout_s=ready_timeout_s),
        "fetched": [{"name": "fetch-repository", "release_uri": release_uri}],
        **_running(resolved),
        **pod_values(site, where),
        "adapters": FOLLOWING if spec.engine.room_rank else None,
        **front.values(
            site,
            templates,
            models=[spec.name],
            cpu=where.shape.cpu,
            connection_age_s=spec.serving.connection_age_s,
            drain_s=spec.drain_s,
            limits=limits_of([spec], int(quantity(where.shape.memory))),
            counted=is_counted(resolved),
        ),
    }
    template = "leaderworkerset.yaml.j2" if where.nodes > 1 else "deployment.yaml.j2"
    return workload(templates, template, values)


def is_counted(release: ResolvedRelease) -> bool:
    """Whether the pods' fronts show what they count: for a scaler, or for a canary that a Gateway's route allows."""
    routes, serving = release.site.serving.routes, release.spec.serving
    by_gateway = serving.exposure == "ingress" and routes is not None and routes.kind == "gateway"
    return by_gateway or (serving.autoscale is not None and serving.autoscale.counted_by_the_front)


def probes(*specs: ReleaseSpec, ready_timeout_s: int) -> dict[str, Any]:
    """Template values of the server's probes.

    Triton calls a server ready although a model has unloaded itself (core, src/server.cc, InferenceServer::IsReady, at
    r26.06, eaff04d). A model's own path tells; a server with several such models needs one answer about all of them.
    """
    names = [spec.name for spec in specs]
    unloading = any(spec.engine.traits.unloads_dead_engine for spec in specs)
    by_name = unloading and len(names) == 1
    paths = [f"/v2/models/{name}/ready" for name in names]
    stalled_s = max(STALLED_S, *(STALLED_DRAINS * spec.drain_s for spec in specs))
    return {
        "start_command": [*READY, f"--within-s={ready_timeout_s}", *names],
        "live_command": [*LIVE, f"--stalled-s={stalled_s}", *(paths if unloading else ["/v2/health/ready"])],
        "ready_command": [*READY, *names] if unloading and not by_name else None,
    }


def most_replicas(spec: ReleaseSpec) -> int:
    """Pods that may serve the release at once."""
    replicas = spec.serving.replicas
    return replicas.max if spec.serving.autoscale else replicas.min


def selector_of(model: str, release_id: str) -> dict[str, str]:
    """Labels of the pods that answer for a release with a server of its own."""
    return {MODEL_LABEL: model, RELEASE_LABEL: release_id}


def service(release_id: str, release: ResolvedRelease, templates: Path, *, candidate: bool) -> list[Document]:
    """The model's live Service as its spec exposes it, or its candidate's, selecting one release."""
    return service_selecting(selector_of(release.spec.name, release_id), release, templates, candidate=candidate)


def service_selecting(
    selector: dict[str, str], release: ResolvedRelease, templates: Path, *, candidate: bool
) -> list[Document]:
    """As `service`, with another selector."""
    spec, site = release.spec, release.site
    balanced = spec.serving.exposure == "load-balancer" and not candidate
    values = {
        "name": f"{spec.name}-candidate" if candidate else spec.name,
        "namespace": site.kubernetes.serving_namespace,
        "model": spec.name,
        "selector": selector,
        "ports": PORTS,
        "role": "candidate" if candidate else "live",
        "type": "LoadBalancer" if balanced else "ClusterIP",
        **load_balancer.service_values(site.serving.load_balancer if balanced else None, spec),
    }
    return template_files.documents(templates, "service.yaml.j2", values)


def pod_values(site: Site, where: Placement) -> dict[str, Any]:
    """Template values that follow from the placement alone."""
    folders = (MODELS, TEMPORARY, SHARED_MEMORY, FRONT)
    return {
        "namespace": site.kubernetes.serving_namespace,
        "bind_address": site.serving.bind_address,
        "ports": PORTS,
        "image": where.image,
        "shape": where.shape.model_dump(mode="json", exclude_none=True),
        "devices": where.devices,
        "mounts": {name: [folder.mount() for folder in WRITES[name]] for name in get_args(ServingContainer)},
        "volumes": volumes(folders, where.shape.scratch, where.shape.gpus, _neighbours(where)),
        "environment": {**(NCCL if where.ranks > 1 else {}), **(EFA if where.efa else {})},
        "credentials_secret": site.object_store.credentials_secret,
        "adapters": None,
    }


def digest_of(document: Document) -> str | None:
    """Digest of what an object was rendered as; None where that is not known."""
    digest: str | None = (document["metadata"].get("annotations") or {}).get(MANIFEST)
    return digest


def release_uris(document: Document) -> dict[str, str]:
    """Addresses of the releases that a workload's pods fetch, by annotation."""
    annotations = document["metadata"].get("annotations") or {}
    return {name: uri for name, uri in annotations.items() if name.startswith(RELEASE_URI)}


def keys_secret(workload: Document) -> str | None:
    """The Secret of API keys that a workload's front asks for; None where it lets everybody in."""
    spec = workload["spec"]
    template = spec["leaderWorkerTemplate"]["leaderTemplate"] if "leaderWorkerTemplate" in spec else spec["template"]
    secrets = {
        volume["name"]: volume["secret"]["secretName"] for volume in template["spec"]["volumes"] if "secret" in volume
    }
    return secrets.get(KEYS_VOLUME)


def _running(release: ResolvedRelease) -> dict[str, Any]:
    """The server's command, and its time to end: the front's drain, then the server's own end.

    mpirun passes SIGTERM on to every rank, and a rank that ends takes its requests with it. The front has none left by
    then. A single server could finish requests after the signal; it is given that time in case the drain fails.
    """
    spec, site, where = release.spec, release.site, release.serving
    alone = Server(
        site.serving.bind_address,
        exit_timeout_s(spec.drain_s),
        "$(POD_NAME)",
        latency_histograms=site.telemetry.metrics,
        traces=site.telemetry.triton_traces,
    )
    server = commands.server_of(spec, alone)
    by_mpirun = server.ranked_model is not None or where.nodes > 1
    end_s = commands.end_s(where.nodes) if by_mpirun else server.exit_timeout_s
    values: dict[str, Any] = {"grace_s": grace_s(spec.drain_s, end_s)}
    if where.nodes > 1:
        return values | {
            "nodes": where.nodes,
            "ranks_per_node": where.shape.gpus,
            "exit_timeout_s": server.exit_timeout_s,
            "mpi_secret": site.serving.mpi_secret,
            "launch_port": commands.SSH_PORT,
            "ranks": f"--launcher={server.launcher}" if server.launcher else f"--ranked-model={server.ranked_model}",
        }
    return values | {"drain_s": spec.drain_s, "command": commands.in_a_pod(server, where.ranks)}


def grace_s(drain_s: int, end_s: int) -> int:
    """How long a pod may take to end, where requests may take `drain_s` and its server `end_s` after SIGTERM."""
    return front.LEAVE_S + drain_s + end_s + SPARE_S


def exit_timeout_s(drain_s: int) -> int:
    """Triton's time to end, where requests in flight may take `drain_s`."""
    return drain_s + UNLOAD_S


def _workers_start_s(site: Site, where: Placement) -> int:
    """How long a leader may have to wait for workers whose nodes and images come later than its own."""
    budget = site.budgets.gpu
    return budget.schedule_s + budget.pull_s if where.nodes > 1 else 0


def _neighbours(where: Placement) -> int:
    return where.shape.gpus if where.ranks > 1 else 0


def workload(templates: Path, name: str, values: dict[str, Any]) -> list[Document]:
    """Render a workload's documents, each with the digest of what was rendered.

    Raises:
        InputError: Kubernetes would expand a value that is not meant to be (see kubernetes_text.py).
    """
    return template_files.documents(templates, name, values, _annotated)


def _annotated(documents: list[Document]) -> list[Document]:
    """The documents, checked, each with its digest."""
    check_pod_values(container_values(documents))
    for document in documents:
        document["metadata"].setdefault("annotations", {})[MANIFEST] = sha256_of(document)
    return documents
