"""What `slipway doctor` asks of each service that a release needs: one line each, or an error that says what to do."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx

from slipway.cli.cluster.image_ages import image_ages
from slipway.cli.deadline import within
from slipway.cli.error_text import parts
from slipway.cli.json_documents import Check
from slipway.cli.settings import Settings
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.fit.placement import GPU_PRODUCT, GPU_RESOURCE
from slipway.tasks.contracts.site.site import quantity
from slipway.tasks.contracts.stored.lease import lease_of

ANSWER_S = 10.0
LISTED = ("EndpointSlice", "Pod", "Service")
"""Kinds of the serving namespace that `status` and `ask` list, as Role slipway-user allows. Leases they get by name."""


def checks(settings: Settings) -> Iterator[Check]:
    """What each probe found, in the order in which a release needs the services."""
    probes: dict[str, Callable[[Settings], str]] = {
        "site": _site,
        "airflow": _airflow,
        "object store": _store,
        "hub": _hub,
        "cluster": _rights,
        "kinds": _kinds,
        "gpu nodes": _gpu_nodes,
        "quotas": _quotas,
        "volumes": _volumes,
        "images": _images,
    }
    for name, probe in probes.items():
        try:
            yield Check(name=name, text=probe(settings), remedy="", exit_code=0)
        except PipelineError as error:
            statement, remedy = parts(error)
            yield Check(name=name, text=statement, remedy=remedy, exit_code=error.exit_code)


def _site(settings: Settings) -> str:
    return f"{settings.known_site_file()} describes site {settings.site().name}"


def _airflow(settings: Settings) -> str:
    with settings.airflow(ANSWER_S) as airflow:
        health = airflow.health()
        models = len(airflow.dags("release__"))
    if ill := [f"{service} is {state}" for service, state in health.items() if state != "healthy"]:
        raise UnavailableError(
            f"Airflow at {airflow.address} cannot run a release",
            found=", ".join(ill),
            remedy="Read that service's log.",
        )
    return f"{airflow.address}: {', '.join(health)} are healthy, {models} model{'s' * (models != 1)}"


def _store(settings: Settings) -> str:
    from slipway.tasks.adapters.store.conditional_writes import check_conditional_writes  # noqa: PLC0415 - as in setup

    store, layout = settings.store()
    return f"{layout.root}: {check_conditional_writes(store, layout.root)}"


def _hub(settings: Settings) -> str:
    endpoint = settings.site().hub.endpoint
    try:
        status = within(ANSWER_S, lambda: _status(endpoint))
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        raise UnavailableError(
            f"{endpoint} does not answer", found=error, remedy="Check hub.endpoint in the site file, and the way there."
        ) from error
    if httpx.codes.is_server_error(status):
        raise UnavailableError(f"{endpoint} answers {status}", remedy="Try again later.")
    return f"{endpoint} answers; whether pods reach it is for `plan` to find out"


def _status(address: str) -> int:
    """The status of an answer, whose body is not read."""
    with httpx.stream("GET", address, timeout=ANSWER_S) as answer:
        return answer.status_code


def _rights(settings: Settings) -> str:
    cluster = settings.cluster()
    for kind in LISTED:
        cluster.find(kind, {})
    cluster.get("Lease", lease_of("doctor"))
    return f"this user may read {', '.join(LISTED)} and Lease in namespace {cluster.namespace}"


def _kinds(settings: Settings) -> str:
    site, cluster = settings.site(), settings.cluster()
    routes = site.serving.routes if site.serving.routes and site.serving.routes.kind == "gateway" else None
    wanted = {
        "LeaderWorkerSet": site.images.multinode is not None,
        "HTTPRoute": routes is not None,
        "GRPCRoute": routes is not None and routes.grpc_host is not None,
        "NodePool": any(gpu.nodes for gpu in site.gpus.values()),
    }
    needed = [kind for kind, is_wanted in wanted.items() if is_wanted]
    if absent := [kind for kind in needed if not cluster.has_kind(kind)]:
        raise InputError(
            f"the cluster has no {', '.join(absent)}, which site {site.name} needs",
            remedy="Install what defines them: docs/cluster-setup.md.",
        )
    return f"the cluster has {', '.join(needed)}" if needed else "the site needs no kind that a cluster may lack"


def _gpu_nodes(settings: Settings) -> str:
    site, cluster = settings.site(), settings.cluster()
    if not site.gpus:
        return "the site names no GPU"
    counts = {name: _gpus(cluster.nodes({GPU_PRODUCT: name})) for name in site.gpus}
    there = ", ".join(f"{count} {name}" for name, count in counts.items())
    if absent := [name for name, count in counts.items() if not count and site.gpus[name].nodes is None]:
        raise InputError(
            f"no node has {' or '.join(absent)}",
            found=there,
            remedy=f"Check that GPU feature discovery sets {GPU_PRODUCT} on nodes, and that the device plugin runs.",
        )
    return f"{there} on nodes that take pods"


def _gpus(nodes: list[dict[str, Any]]) -> int:
    return sum(int(node["status"].get("allocatable", {}).get(GPU_RESOURCE, "0")) for node in nodes)


def _quotas(settings: Settings) -> str:
    site, cluster = settings.site(), settings.cluster()
    namespaces = dict.fromkeys((site.kubernetes.serving_namespace, site.kubernetes.pipeline_namespace))
    quotas = [quota for namespace in namespaces for quota in cluster.find("ResourceQuota", {}, namespace=namespace)]
    full = [
        f"{quota['metadata']['namespace']} uses {status['used'][name]} of {hard} {name}"
        for quota in quotas
        if (status := quota.get("status") or {}).get("used")
        for name, hard in (status.get("hard") or {}).items()
        if quantity(status["used"].get(name, "0")) >= quantity(hard) > 0
    ]
    if full:
        raise InputError(
            "a quota is full", found=", ".join(full), remedy="Raise it, or remove what uses it in that namespace."
        )
    return f"{len(quotas)} in {' and '.join(namespaces)}, none is full"


def _volumes(settings: Settings) -> str:
    """What the claims are that a spec may name in source.uri; their contents are for `plan` to find out."""
    namespace = settings.site().kubernetes.pipeline_namespace
    claims = {
        item["metadata"]["name"]: (item.get("status") or {}).get("phase", "Pending")
        for item in settings.cluster().find("PersistentVolumeClaim", {}, namespace=namespace)
    }
    if unbound := [f"{name} is {phase}" for name, phase in claims.items() if phase != "Bound"]:
        raise InputError(
            f"no model can be read from a claim in {namespace}",
            found=", ".join(unbound),
            expected="Bound",
            remedy="Bind it to the volume that has the models' files, or delete it.",
        )
    return f"{len(claims)} claims in {namespace}, none is unbound"


def _images(settings: Settings) -> str:
    ages = list(image_ages(settings.site()))
    if refused := [line for line in ages if "refused by plan" in line]:
        raise InputError("; ".join(refused), remedy="Name an image that `slipway doctor --images` accepts.")
    return "; ".join(ages)
