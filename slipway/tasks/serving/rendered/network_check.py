"""Renders what measures the network between the nodes of a release. Pure except for reading templates."""

from pathlib import Path
from typing import Any

from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.pods.writes import SHARED_MEMORY, TEMPORARY, volumes
from slipway.tasks.contracts.site.network_check import NetworkFloor
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.serving.rendered import commands, manifests
from slipway.tasks.serving.rendered import templates as template_files
from slipway.tasks.serving.rendered.manifests import Document

CHECK_LABEL = "slipway.dev/network-check-of"
ID_CHARS = 12
RUN_AS = {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
RESTRICTED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
LEADER = "leader"
"""Container whose termination message is the result."""


def name_of(release: Release) -> str:
    """Name of the measurement's workload, short enough for the labels that are made of it."""
    return f"network-{release.id[-ID_CHARS:]}"


def workload(release: Release, floor: NetworkFloor, site: Site, templates: Path) -> list[Document]:
    """Render the measurement for a release that spans nodes.

    Raises:
        InputError: the site lacks what the release needs.
    """
    where = ResolvedRelease(release.spec, site).serving
    values = manifests.pod_values(site, where)
    labels = {**manifests.OWN_LABELS, CHECK_LABEL: release.id}
    budget = site.budgets.gpu
    lead = [
        *("python", "-m", "slipway.tasks", "lead", "--group=$(GROUP_KEY)", f"--nodes={where.nodes}"),
        *(f"--ranks-per-node={where.shape.gpus}", f"--all-reduce-mib={floor.size_mib}"),
        *(f"--bind-address={site.serving.bind_address}", f"--exit-timeout-s={floor.timeout_s}"),
        f"--ready-timeout-s={budget.schedule_s + budget.pull_s}",
    ]
    group = {"fieldPath": "metadata.labels['leaderworkerset.sigs.k8s.io/group-key']"}
    environment: list[dict[str, Any]] = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "GROUP_KEY", "valueFrom": {"fieldRef": group}},
        {"name": "SLIPWAY_SITE", "value": "/etc/slipway/site.yaml"},
        {"name": "SLIPWAY_TERMINATION_LOG", "value": "/dev/termination-log"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
    leader = _pod(values, site, labels, LEADER, lead, environment)
    leader["spec"] |= {"serviceAccountName": "slipway-leader", "automountServiceAccountToken": True}
    sshd = ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/slipway-mpi/sshd_config"]
    worker = _pod(values, site, labels, "node", sshd, [])
    port = {"name": "mpi-launch", "containerPort": commands.SSH_PORT}
    worker["spec"]["containers"][0] |= {
        "ports": [port],
        "readinessProbe": {"tcpSocket": {"port": "mpi-launch"}, "periodSeconds": 2, "failureThreshold": 2},
    }
    rendered = {
        "name": name_of(release),
        "namespace": site.kubernetes.serving_namespace,
        "labels": labels,
        "nodes": where.nodes,
        "leader": leader,
        "worker": worker,
    }
    return template_files.documents(templates, "networkcheck.yaml.j2", rendered)


def _pod(
    values: dict[str, Any],
    site: Site,
    labels: dict[str, str],
    container: str,
    command: list[str],
    environment: list[dict[str, Any]],
) -> Document:
    """One kind of pod, with the resources of a server's."""
    shape, devices = values["shape"], values["devices"]
    own = [
        {"name": "HOME", "value": TEMPORARY.path},
        *({"name": k, "value": v} for k, v in sorted(values["environment"].items())),
    ]
    mounts = [
        {"name": "site", "mountPath": "/etc/slipway", "readOnly": True},
        {"name": "mpi", "mountPath": "/etc/slipway-mpi/keys", "readOnly": True},
        TEMPORARY.mount(),
        SHARED_MEMORY.mount(),
    ]
    folders = volumes((TEMPORARY, SHARED_MEMORY), shape["scratch"], shape["gpus"], ranks=shape["gpus"])
    return {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": "slipway-server",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            "securityContext": RUN_AS,
            "nodeSelector": shape["node_selector"],
            "tolerations": shape["tolerations"],
            "containers": [
                {
                    "name": container,
                    "image": values["image"],
                    "command": command,
                    "env": [*own, *environment],
                    "securityContext": RESTRICTED,
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "resources": {
                        "requests": {**devices, "cpu": shape["cpu"], "memory": shape["memory"]},
                        "limits": {**devices, "memory": shape["memory"]},
                    },
                    "volumeMounts": mounts,
                }
            ],
            "volumes": [
                *folders,
                {"name": "site", "configMap": {"name": "slipway-site"}},
                {"name": "mpi", "secret": {"secretName": site.serving.mpi_secret, "defaultMode": 0o440}},
            ],
        },
    }
