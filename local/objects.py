"""Puts the project's base manifests into the embedded cluster, without kubectl."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tasks.adapters.kube import Cluster
from tasks.contracts.site import Site


def base_objects(manifests: Path) -> list[dict[str, Any]]:
    """The objects that k8s_manifests/base/kustomization.yaml lists, in its order: namespaces come first."""
    base = manifests / "base"
    listed = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
    return [item for name in listed for item in yaml.safe_load_all((base / name).read_text()) if item]


def apply(site: Site, kubeconfig: Path, manifests: Path, own: Iterable[dict[str, Any]]) -> None:
    """Apply the base and then `own` objects."""
    cluster = Cluster.connect(site, kubeconfig=kubeconfig)
    cluster.apply([*base_objects(manifests), *own])
