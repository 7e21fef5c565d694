"""Renders what leads clients outside the cluster to a model's live Service, and to a canary. It names no release. Pure.

Every path is passed on: Triton's own (/v2), and whatever else the server answers on its HTTP port.
"""

from pathlib import Path
from typing import Any

from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.exposure import Routes, Split, filled
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.serving.rendered import manifests
from slipway.tasks.serving.rendered.commands import PORTS
from slipway.tasks.serving.rendered.manifests import Document

INGRESS, HTTP_ROUTE, GRPC_ROUTE = "Ingress", "HTTPRoute", "GRPCRoute"


def places(model: str) -> tuple[tuple[str, str], ...]:
    """Kind and name of everything that may lead to a model. No other model can have a name with a dot."""
    return (INGRESS, model), (INGRESS, f"{model}.grpc"), (HTTP_ROUTE, model), (GRPC_ROUTE, model)


def routes(spec: ReleaseSpec, site: Site, templates: Path, split: Split | None = None) -> list[Document]:
    """The Ingresses or routes of the model; none unless `serving.exposure` is ingress.

    Args:
        spec: of the release that is live.
        site: the site.
        templates: the templates.
        split: how routes of the Gateway API divide the requests; the live Service gets all when absent.

    Raises:
        InputError: the site does not say how it exposes models.
    """
    asked = ResolvedRelease(spec, site).routes
    if asked is None:
        return []
    values = {
        "namespace": site.kubernetes.serving_namespace,
        "labels": {**manifests.OWN_LABELS, manifests.MODEL_LABEL: spec.name},
        "timeout_s": spec.drain_s,
        "class_name": asked.class_name,
        "tls_secret": f"{spec.name}-tls" if asked.tls else None,
        "parent": _parent(asked),
    }
    http, grpc = (INGRESS, INGRESS) if asked.kind == "ingress" else (HTTP_ROUTE, GRPC_ROUTE)
    ends: list[tuple[str, str, str, int, dict[str, str]]] = [(http, spec.name, asked.host, PORTS["http"], {})]
    if asked.grpc_host is not None:
        name = f"{spec.name}.grpc" if grpc == INGRESS else spec.name
        ends.append((grpc, name, asked.grpc_host, PORTS["grpc"], asked.grpc_annotations))
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
                "annotations": _filled({**asked.annotations, **more}, spec),
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


def _filled(given: dict[str, str], spec: ReleaseSpec) -> dict[str, str]:
    return {key: filled(value, spec.name, spec.drain_s) for key, value in given.items()}


def _parent(asked: Routes) -> dict[str, str] | None:
    if asked.gateway is None:
        return None
    optional = {"namespace": asked.gateway.namespace, "sectionName": asked.gateway.listener}
    return {"name": asked.gateway.name, **{key: value for key, value in optional.items() if value}}
