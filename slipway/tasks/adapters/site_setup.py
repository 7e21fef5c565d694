"""One-time setup of a cluster and an object store for a site. `slipway setup` and the laptop's stack both run it."""

from collections.abc import Mapping

from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.node_pools import remove_unnamed
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.fit.site_objects import Document, credentials_secrets, site_objects, unneeded_policies
from slipway.tasks.contracts.site.site import Site


def set_up(site: Site, text: str, cluster: Cluster, store: S3ObjectStore, credentials: Mapping[str, str]) -> list[str]:
    """Create what the site needs besides k8s_manifests/. Running it again applies only changes of the site file.

    A policy that the site file no longer requires is deleted, because it would keep an unused destination open. So is a
    node pool without nodes.

    Args:
        site: the site.
        text: the text of its file.
        cluster: the cluster, which has the namespaces of k8s_manifests/ already.
        store: the site's object store.
        credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without them the Secrets stay as they are.

    Returns:
        One line for each object that is in place or was removed.

    Raises:
        InputError: a namespace is missing, or the credentials may not create an object.
        UnavailableError: the cluster or the object store does not answer.
    """
    objects = [*site_objects(site, text), *credentials_secrets(site, credentials)]
    cluster.apply(objects)
    applied = [_shown(item) for item in objects]
    removed = [
        f"NetworkPolicy {namespace}/{name} (removed)"
        for namespace, name in unneeded_policies(site)
        if cluster.delete("NetworkPolicy", name, namespace=namespace)
    ]
    removed += remove_unnamed(site, objects, cluster)
    created = store.ensure_bucket()
    return [*applied, *removed, f"bucket {site.object_store.bucket}{' (created)' if created else ''}"]


def _shown(item: Document) -> str:
    namespace = item["metadata"].get("namespace")
    return f"{item['kind']} {f'{namespace}/' if namespace else ''}{item['metadata']['name']}"
