"""Removes what an earlier site file had `slipway setup` make for GPU nodes, and the current one no longer names.

Karpenter terminates every node of a NodePool that is deleted, with the pods on it: NodeClaims are owned by their pool
(aws/karpenter-provider-aws, pull request 1934). So a pool goes only once none of its nodes is left.
"""

from collections.abc import Iterable

from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.kube_errors import StaleError
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.node_objects import made_for
from slipway.tasks.contracts.fit.site_objects import Document
from slipway.tasks.contracts.site.site import Site

POOL, CLASS, CLAIM, PULLER = "NodePool", "EC2NodeClass", "NodeClaim", "DaemonSet"
POOL_LABEL = "karpenter.sh/nodepool"
"""Label of NodeClaims: the name of their pool (pkg/apis/v1/labels.go of kubernetes-sigs/karpenter)."""


def remove_unnamed(site: Site, wanted: Iterable[Document], cluster: Cluster) -> list[str]:
    """Delete the site's NodePools without nodes, their EC2NodeClasses, and DaemonSets that `wanted` does not hold.

    Objects of another site, and those without a label of the site that made them, are left alone.

    Returns:
        One line for each object that was removed, or that is kept and why.
    """
    names = {(item["kind"], item["metadata"]["name"]) for item in wanted}
    own = made_for(site)
    pipeline = site.kubernetes.pipeline_namespace
    try:
        pullers = _unnamed(cluster.find(PULLER, own, namespace=pipeline), names)
        pools = cluster.find(POOL, own)
        unnamed = _unnamed(pools, names)
        nodes = {pool["metadata"]["name"]: _nodes(pool, cluster) for pool in unnamed}
        classes = _unnamed(cluster.find(CLASS, own), names)
    except InputError as error:
        return [f"NodePools that the site file no longer names were not looked for: {error.what}"]
    lines = [_delete(item, cluster, pipeline) for item in pullers]
    lines += [_kept(pool, count) for pool in unnamed if (count := nodes[pool["metadata"]["name"]])]
    empty = [pool for pool in unnamed if not nodes[pool["metadata"]["name"]]]
    lines += [_delete(pool, cluster) for pool in empty]
    used = {_class_of(pool) for pool in pools if pool not in empty}
    return lines + [_delete(item, cluster) for item in classes if item["metadata"]["name"] not in used]


def _unnamed(objects: Iterable[Document], names: set[tuple[str, str]]) -> list[Document]:
    return [item for item in objects if (item["kind"], item["metadata"]["name"]) not in names]


def _nodes(pool: Document, cluster: Cluster) -> int:
    return len(cluster.find(CLAIM, {POOL_LABEL: pool["metadata"]["name"]}))


def _class_of(pool: Document) -> str:
    return str(pool["spec"]["template"]["spec"]["nodeClassRef"]["name"])


def _kept(pool: Document, nodes: int) -> str:
    name = pool["metadata"]["name"]
    return (
        f"{POOL} {name} is kept, although the site file no longer names it: {nodes} of its nodes run, and "
        f"deleting it would end their pods. Run setup again when they are gone, or `kubectl delete nodepool {name}`."
    )


def _delete(item: Document, cluster: Cluster, namespace: str | None = None) -> str:
    kind, name = item["kind"], item["metadata"]["name"]
    place = f"{kind} {f'{namespace}/' if namespace else ''}{name}"
    try:
        # at the version that was read: a pool that has started a node since then has another one
        cluster.delete(kind, name, version=item["metadata"].get("resourceVersion"), namespace=namespace)
    except StaleError:
        return f"{place} is kept, although the site file no longer names it: it has just changed. Run setup again."
    return f"{place} (removed)"
