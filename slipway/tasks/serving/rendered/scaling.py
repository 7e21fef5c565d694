"""Renders what scales the live release of a model: a HorizontalPodAutoscaler, or a ScaledObject of KEDA. Pure."""

from decimal import Decimal
from pathlib import Path

from slipway.tasks.adapters.kube.workload_state import DEPLOYMENT, LEADER_WORKER_SET
from slipway.tasks.contracts.engine.scaling import SERIES
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.serving.rendered import manifests
from slipway.tasks.serving.rendered.manifests import Document

HPA, SCALED_OBJECT = "HorizontalPodAutoscaler", "ScaledObject"
KINDS = (HPA, SCALED_OBJECT)
TARGETS = {DEPLOYMENT: "apps/v1", LEADER_WORKER_SET: "leaderworkerset.x-k8s.io/v1"}
"""Workloads with a scale subresource. A LeaderWorkerSet's replica is a group of pods; its scaler sees the leaders."""
TEMPLATES = {"hpa": "hpa.yaml.j2", "keda": "scaledobject.yaml.j2"}


def scaler(release: Release, site: Site, templates: Path) -> list[Document]:
    """The object that scales the release while it is live; none where its replicas are fixed.

    Raises:
        InputError: the site has nothing that scales.
    """
    spec, where = release.spec, ResolvedRelease(release.spec, site)
    asked, tool = spec.serving.autoscale, where.scaler
    if asked is None or tool is None:
        return []
    kind = LEADER_WORKER_SET if where.nodes > 1 else DEPLOYMENT
    values = {
        "name": spec.name,
        "namespace": site.kubernetes.serving_namespace,
        "labels": {**manifests.OWN_LABELS, manifests.MODEL_LABEL: spec.name},
        "target_ref": {"apiVersion": TARGETS[kind], "kind": kind, "name": release.id},
        "least": spec.serving.replicas.min,
        "most": spec.serving.replicas.max,
        "stabilization_s": asked.stabilization_s,
        "series": SERIES[asked.metric],
        "target": _quantity(asked.target),
        "threshold": f"{Decimal(str(asked.target)):f}",
        "prometheus": tool.prometheus,
        "query": _query(SERIES[asked.metric], site.kubernetes.serving_namespace, release.id),
    }
    return manifests.workload(templates, TEMPLATES[tool.kind], values)


def _quantity(target: float) -> str:
    """As Kubernetes writes a quantity: `0.8` is `800m`."""
    thousandths = int((Decimal(str(target)) * 1000).to_integral_value())
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def _query(series: str, namespace: str, release_id: str) -> str:
    """The sum over the release's pods; their names begin with the release's id, which no other workload's does."""
    return f'sum({series}{{namespace="{namespace}",pod=~"{release_id}-.+"}})'
