"""Prepares the embedded cluster and object store, as docs/cluster-setup.md prepares real ones but without kubectl."""

import json
import time
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

from local.private_files import write_private
from local.settings import Settings
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.site_setup import set_up
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.fit.site_objects import signing_secret
from slipway.tasks.contracts.site.site import Site

GATEWAY_READY_S, POLL_S = 90.0, 0.1
TOKEN_LIFETIME_S = 365 * 24 * 3600  # `make up` writes a new one


def base_objects(manifests: Path) -> list[dict[str, Any]]:
    """The objects that k8s_manifests/base/kustomization.yaml lists, in its order, namespaces first."""
    base = manifests / "base"
    listed = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
    return [item for name in listed for item in yaml.safe_load_all((base / name).read_text()) if item]


def prepare(site: Site, text: str, kubeconfig: Path, manifests: Path, settings: Settings) -> None:
    """Apply the base manifests, the signing key, and what `slipway setup` applies for the site of the file `text`."""
    cluster = Cluster.connect(site, kubeconfig=kubeconfig)
    cluster.apply([*base_objects(manifests), *signing_secret(site, settings.signing_key)])
    set_up(site, text, cluster, S3ObjectStore(site.object_store, settings.credentials), settings.credentials)


def serve_gateway(site: Site, kubeconfig: Path, file: Path) -> tuple[str, int]:
    """Apply the Gateway of `file` in the serving namespace; the address and port of its listener, once it serves.

    Raises:
        PipelineError: it does not.
    """
    cluster, gateway = Cluster.connect(site, kubeconfig=kubeconfig), yaml.safe_load(file.read_text())
    name, [listener] = gateway["metadata"]["name"], gateway["spec"]["listeners"]
    gateway["metadata"]["namespace"] = site.kubernetes.serving_namespace
    cluster.apply([gateway])
    deadline, status = time.monotonic() + GATEWAY_READY_S, dict[str, Any]()
    while time.monotonic() < deadline:
        status = (cluster.get("Gateway", name) or {}).get("status") or {}
        conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
        if conditions.get("Programmed") == "True":
            return str(status["addresses"][0]["value"]), int(listener["port"])
        time.sleep(POLL_S)
    raise PipelineError(
        f"Gateway {name} does not serve after {GATEWAY_READY_S:.0f} s",
        found=status or "no status",
        expected="condition Programmed",
        remedy="Read logs/cluster.log and cluster/gateway/envoy.log in the stack's folder.",
    )


def write_kubeconfig(admin: Path, namespace: str, account: str, target: Path) -> None:
    """Write a kubeconfig with a token of a service account, from the administrator's; only its owner can read it."""
    core = client.CoreV1Api(config.new_client_from_config(str(admin)))
    request = {"spec": {"audiences": [], "expirationSeconds": TOKEN_LIFETIME_S}}
    token = core.create_namespaced_service_account_token(account, namespace, request).status.token
    document = json.loads(admin.read_text())
    for user in document["users"]:
        user["user"] = {"token": token}
    write_private(target, json.dumps(document, indent=1))
