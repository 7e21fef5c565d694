"""The project's manifests as objects, and what Kubernetes would say of them."""

import copy
import functools

from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

MANIFESTS = REPOSITORY / "k8s_manifests"
BASE = MANIFESTS / "base"


def listed(folder=BASE):
    """Files of a kustomization, in its order."""
    return [folder / name for name in load_yaml((folder / "kustomization.yaml").read_text())["resources"]]


@functools.cache
def _read_base():
    return [load_yaml(file.read_text()) for file in listed()]


def base_objects():
    return copy.deepcopy(_read_base())


def named(kind, name):
    return next(item for item in base_objects() if (item["kind"], item["metadata"]["name"]) == (kind, name))


def violations(pod):
    """What in a pod's spec the restricted Pod Security Standard refuses.

    https://kubernetes.io/docs/concepts/security/pod-security-standards, Kubernetes 1.34.
    """
    found = [f"{field} is set" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field)]
    own = pod.get("securityContext") or {}
    volumes = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    for volume in pod.get("volumes") or []:
        found += [f"volume {volume['name']} is a {kind}" for kind in volume if kind not in {"name", *volumes}]
    for container in [*(pod.get("initContainers") or []), *pod["containers"]]:
        context = own | (container.get("securityContext") or {})
        checks = {
            "privilege escalation": context.get("allowPrivilegeEscalation") is False,
            "root": context.get("runAsNonRoot") is True and context.get("runAsUser") != 0,
            "capabilities": context.get("capabilities") == {"drop": ["ALL"]},
            "seccomp": (context.get("seccompProfile") or {}).get("type") in {"RuntimeDefault", "Localhost"},
            "privileged": not context.get("privileged"),
            "host ports": not any(port.get("hostPort") for port in container.get("ports") or []),
        }
        found += [f"{container['name']}: {what}" for what, good in checks.items() if not good]
    return found
