"""The Kubernetes objects that derive from a site file alone. Pure: `slipway setup` and the laptop's stack apply them.

k8s_manifests/ has what is the same on every cluster: namespaces, identities, roles and default policies. The objects
here depend on the site: the file that every pod mounts, the object store's credentials, and network policies
for a Hub or an object store that the default policies block.
"""

from collections.abc import Mapping
from typing import Any

from slipway.tasks.contracts.fit.node_objects import node_objects
from slipway.tasks.contracts.site.signing import SECRET_KEY
from slipway.tasks.contracts.site.site import Site, endpoint_port

Document = dict[str, Any]
"""A Kubernetes object as JSON."""

SITE_CONFIG_MAP = "slipway-site"
SITE_FILE = "site.yaml"
HUB_POLICY = "site-hub"
OBJECT_STORE_POLICY = "site-object-store"
MLFLOW_POLICY = "site-mlflow"
HUB_STEPS = ("plan", "download", "fetch-adapters")
"""The steps that talk to the Hub, as in k8s_manifests/base/networkpolicy-slipway-hub.yaml."""

READS_DATASETS = "slipway.dev/reads-datasets"
"""Label of pods of evaluate whose tasks read datasets of the Hub, as in networkpolicy-slipway-datasets.yaml."""
DATASETS_POLICY = "site-datasets"

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
MANAGED = {"app.kubernetes.io/managed-by": "slipway"}


def site_objects(site: Site, text: str) -> list[Document]:
    """The site's ConfigMaps, network policies and node pools.

    Args:
        site: the site.
        text: the text of its file, which pods read unchanged.
    """
    namespaces = (site.kubernetes.pipeline_namespace, site.kubernetes.serving_namespace)
    return [*(_config_map(namespace, text) for namespace in namespaces), *_policies(site), *node_objects(site)]


def credentials_secrets(site: Site, environment: Mapping[str, str]) -> list[Document]:
    """The object store's credentials as the Secrets that pods of both namespaces read.

    Empty where pods use a cloud identity, or where `environment` lacks AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY.
    """
    name = site.object_store.credentials_secret
    if name is None or not all(environment.get(variable) for variable in CREDENTIALS):
        return []
    data = {variable: environment[variable] for variable in CREDENTIALS}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": name, "namespace": namespace, "labels": MANAGED},
            "stringData": data,
        }
        for namespace in (site.kubernetes.pipeline_namespace, site.kubernetes.serving_namespace)
    ]


def signing_secret(site: Site, private_key: str) -> list[Document]:
    """The Secret with the private key that publish signs with; empty where the site names none."""
    if site.signing is None or site.signing.key_secret is None:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {
                "name": site.signing.key_secret,
                "namespace": site.kubernetes.pipeline_namespace,
                "labels": MANAGED,
            },
            "stringData": {SECRET_KEY: private_key},
        }
    ]


def unneeded_policies(site: Site) -> list[tuple[str, str]]:
    """Namespace and name of the policies that another site file may have needed and this one does not."""
    pipeline, serving = site.kubernetes.pipeline_namespace, site.kubernetes.serving_namespace
    possible = [
        (pipeline, HUB_POLICY),
        (pipeline, DATASETS_POLICY),
        (pipeline, MLFLOW_POLICY),
        (pipeline, OBJECT_STORE_POLICY),
        (serving, OBJECT_STORE_POLICY),
    ]
    needed = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in _policies(site)}
    return [policy for policy in possible if policy not in needed]


def _config_map(namespace: str, text: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SITE_CONFIG_MAP, "namespace": namespace, "labels": MANAGED},
        "data": {SITE_FILE: text},
    }


def _policies(site: Site) -> list[Document]:
    """Policies are additive: each of these allows one more destination besides those of k8s_manifests/base."""
    policies = []
    if ranges := site.hub.ranges:
        hub_pods = {"matchExpressions": [{"key": "slipway.dev/step", "operator": "In", "values": list(HUB_STEPS)}]}
        port = endpoint_port(site.hub.endpoint)
        policies.append(_egress(HUB_POLICY, site.kubernetes.pipeline_namespace, hub_pods, ranges, port))
        reads_datasets = {"matchLabels": {READS_DATASETS: "true"}}
        policies.append(_egress(DATASETS_POLICY, site.kubernetes.pipeline_namespace, reads_datasets, ranges, port))
    if site.mlflow and (ranges := site.mlflow.ranges):
        resolving = {"matchLabels": {"slipway.dev/step": "plan"}}
        port = endpoint_port(site.mlflow.endpoint)
        policies.append(_egress(MLFLOW_POLICY, site.kubernetes.pipeline_namespace, resolving, ranges, port))
    if (ranges := site.object_store.ranges) and site.object_store.endpoint is not None:
        port = endpoint_port(site.object_store.endpoint)
        namespaces = (site.kubernetes.pipeline_namespace, site.kubernetes.serving_namespace)
        policies += [_egress(OBJECT_STORE_POLICY, namespace, {}, ranges, port) for namespace in namespaces]
    return policies


def _egress(name: str, namespace: str, pods: Document, ranges: tuple[str, ...], port: int) -> Document:
    peers = [{"ipBlock": {"cidr": cidr}} for cidr in ranges]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace, "labels": MANAGED},
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Egress"],
            "egress": [{"to": peers, "ports": [{"protocol": "TCP", "port": port}]}],
        },
    }
