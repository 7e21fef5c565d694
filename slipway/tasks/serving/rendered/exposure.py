"""Renders what leads clients outside the cluster to a model's live Service, and to a canary. It names no release. Pure.

Every path is passed on: Triton's own (/v2), and whatever else the server answers on its HTTP port.
"""

from pathlib import Path
from typing import Any

from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.exposure import Routes, Split, filled
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.serving.rendered import manifests
from slipway.tasks.serving.rendered.commands import PORTS
from slipway.tasks.serving.rendered.manifests import Document

INGRESS, HTTP_ROUTE, GRPC_ROUTE = "Ingress", "HTTPRoute", "GRPCRoute"


def places(model: str) -> tuple[tuple[str, str], ...]:
    """Kind and name of everything that may lead to a model. No other model can have a name with a dot."""
    return (INGRESS, model), (INGRESS, f"{model}.grpc"), (HTTP_ROUTE, model), (GRPC_ROUTE, model)


def routes(release: ResolvedRelease, templates: Path, split: Split | None = None) -> list[Document]:
    """The Ingresses or routes of the model; none unless `serving.exposure` is ingress.

    Args:
        release: the one that is live.
        templates: the templates.
        split: how routes of the Gateway API divide the requests; the live Service gets all when absent.

    Raises:
        InputError: the site does not say how it exposes models.
    """
    settings, spec = release.routes, release.spec
    if settings is None:
        return []
    values = {
        "namespace": release.site.kubernetes.serving_namespace,
        "labels": {**manifests.OWN_LABELS, manifests.MODEL_LABEL: spec.name},
        "timeout_s": spec.drain_s,
        "class_name": settings.class_name,
        "tls_secret": f"{spec.name}-tls" if settings.tls else None,
        "parent": _parent(settings),
    }
    http, grpc = (INGRESS, INGRESS) if settings.kind == "ingress" else (HTTP_ROUTE, GRPC_ROUTE)
    ends: list[tuple[str, str, str, int, dict[str, str]]] = [(http, spec.name, settings.host, PORTS["http"], {})]
    if settings.grpc_host is not None:
        name = f"{spec.name}.grpc" if grpc == INGRESS else spec.name
        ends.append((grpc, name, settings.grpc_host, PORTS["grpc"], settings.grpc_annotations))
    return [
        document
        for kind, name, host, port, more in ends
        for document in manifests.workload(
            templates,
            f"{kind.lower()}.yaml.j2",
            {
                **values,
                "name": name,
                "host": filled(host, spec.name, spec.drain_s),
                "backends": _backends(spec.name, port, split),
                "mirror": _mirror(spec.name, port, split),
                "service": spec.name,
                "port": port,
                "annotations": _filled({**settings.annotations, **more}, spec),
            },
        )
    ]


def _backends(model: str, port: int, split: Split | None) -> list[dict[str, Any]]:
    if split is None or split.candidate_percent == 0:
        return [{"name": model, "port": port}]
    shares = {model: 100 - split.candidate_percent, f"{model}-candidate": split.candidate_percent}
    return [{"name": name, "port": port, "weight": weight} for name, weight in shares.items()]


def _mirror(model: str, port: int, split: Split | None) -> dict[str, Any] | None:
    if split is None or split.mirror_percent is None:
        return None
    return {"backendRef": {"name": f"{model}-candidate", "port": port}, "percent": split.mirror_percent}


def _filled(annotations: dict[str, str], spec: ReleaseSpec) -> dict[str, str]:
    return {key: filled(value, spec.name, spec.drain_s) for key, value in annotations.items()}


def _parent(settings: Routes) -> dict[str, str] | None:
    if settings.gateway is None:
        return None
    optional = {"namespace": settings.gateway.namespace, "sectionName": settings.gateway.listener}
    return {"name": settings.gateway.name, **{key: value for key, value in optional.items() if value}}
