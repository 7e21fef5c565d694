"""Checks the spec of a pod or of a workload's template.

Malformed fields are refused, and so are features that the server could only pretend to have, if a pod's meaning
depends on them.
"""

import re
from collections.abc import Iterator
from typing import Any

Problem = tuple[str, str]
"""Path of a field, and what is wrong with it."""

VOLUME_TYPES = ("emptyDir", "configMap", "secret", "projected", "downwardAPI", "persistentVolumeClaim")
PROJECTED_SOURCES = ("configMap", "secret", "downwardAPI")
KNOWN_RESOURCES = ("cpu", "memory", "ephemeral-storage")
FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.podIP",
    "status.podIPs",
    "status.hostIP",
    "status.hostIPs",
)
REFUSED_POD_FIELDS = {
    "hostNetwork": "pods of this cluster have an address of their own",
    "hostPID": "this cluster has no process isolation to turn off",
    "hostIPC": "this cluster has no IPC isolation to turn off",
    "hostAliases": "this cluster cannot change how a process resolves names",
    "runtimeClassName": "this cluster runs local processes only",
    "ephemeralContainers": "this cluster has none",
    "readinessGates": "nothing in this cluster would ever open them",
    "schedulingGates": "nothing in this cluster would ever open them",
    "resourceClaims": "this cluster has no devices",
    "shareProcessNamespace": "this cluster has no process namespaces",
    "hostname": "a pod's host name is this machine's; address a pod by its status.podIP",
    "hostnameOverride": "a pod's host name is this machine's; address a pod by its status.podIP",
    "setHostnameAsFQDN": "a pod's host name is this machine's; address a pod by its status.podIP",
    "subdomain": "this cluster has no DNS; address a pod by its status.podIP",
    "dnsConfig": "pods resolve names as this machine does",
    "resources": "this cluster counts no resources of whole pods; give each container its own",
    "overhead": "this cluster has no runtime classes",
    "schedulingGroup": "this cluster schedules pods one by one",
}
REFUSED_CONTAINER_FIELDS = {
    "volumeDevices": "this cluster has no block devices",
    "restartPolicyRules": "this cluster has no such rules",
    "stdin": "nobody can attach to a container of this cluster",
    "tty": "nobody can attach to a container of this cluster",
}
REFUSED_HOOKS = {
    "postStart": "this cluster runs no postStart hooks",
    "stopSignal": "this cluster ends containers with SIGTERM",
}
REFUSED_PROBE_FIELDS = {
    "grpc": "this cluster has no gRPC probes; use httpGet, tcpSocket or exec",
    "terminationGracePeriodSeconds": "this cluster gives a probe's restart the pod's own grace period",
}
HIGHEST_MODE = 0o777
XCOM_SIDECAR = "airflow-xcom-sidecar"
DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")


def problems(at: str, spec: Any, node: str) -> Iterator[Problem]:
    """What is wrong with the pod's spec at the path `at`; `node` is the name of the one node."""
    if not isinstance(spec, dict) or not spec.get("containers"):
        yield f"{at}.containers", "Required value"
        return
    yield from refused(at, spec, REFUSED_POD_FIELDS)
    if spec.get("restartPolicy", "Always") not in ("Always", "OnFailure", "Never"):
        yield f"{at}.restartPolicy", f"Unsupported value: {spec['restartPolicy']!r}"
    if spec.get("schedulerName", "default-scheduler") != "default-scheduler":
        yield f"{at}.schedulerName", f"Invalid value: {spec['schedulerName']!r}: this cluster has no other scheduler"
    if spec.get("dnsPolicy") == "None":
        yield f"{at}.dnsPolicy", "Unsupported value: 'None': pods resolve names as this machine does"
    if spec.get("nodeName") not in (None, node):
        yield f"{at}.nodeName", f"Invalid value: {spec['nodeName']!r}: this cluster has one node, {node}"
    yield from _volumes(at, spec.get("volumes") or [])
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    names: set[str] = set()
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            where, name = f"{at}.{kind}[{index}]", container.get("name", "")
            if name in names:
                yield f"{where}.name", f"Duplicate value: {name!r}"
            names.add(name)
            yield from _container(where, container, volumes)
            yield from _init(where, container) if kind == "initContainers" else _main(where, container)


def refused(at: str, spec: dict[str, Any], fields: dict[str, str]) -> Iterator[Problem]:
    """A problem for each of `fields` that `spec` sets; `fields` says why it is refused."""
    for field, why in fields.items():
        if spec.get(field):
            yield f"{at}.{field}", f"Forbidden: {why}"


def _init(at: str, container: dict[str, Any]) -> Iterator[Problem]:
    """An init container runs to its end, unless it is a sidecar: then it may have probes and hooks."""
    policy = container.get("restartPolicy")
    if policy not in (None, "Always"):
        yield f"{at}.restartPolicy", f"Unsupported value: {policy!r}: for an init container, only Always or none"
    for field in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle"):
        if policy is None and container.get(field):
            yield f"{at}.{field}", "Forbidden: may not be set for init containers without restartPolicy=Always"


def _main(at: str, container: dict[str, Any]) -> Iterator[Problem]:
    if container.get("restartPolicy"):
        yield f"{at}.restartPolicy", "Forbidden: may not be set for non-init containers"


def _volumes(at: str, volumes: list[dict[str, Any]]) -> Iterator[Problem]:
    for index, volume in enumerate(volumes):
        where = f"{at}.volumes[{index}]"
        if not DNS_LABEL.match(volume.get("name", "")):
            yield f"{where}.name", f"Invalid value: {volume.get('name', '')!r}: want a DNS label"
        kinds = [key for key in volume if key != "name"]
        for kind in kinds:
            if kind not in VOLUME_TYPES:
                yield (
                    f"{where}.{kind}",
                    f"Invalid value: this cluster has no {kind} volumes, only {', '.join(VOLUME_TYPES)}",
                )
        if len(kinds) != 1:
            yield where, f"Invalid value: a volume has one type, {volume.get('name', '')!r} has {len(kinds)}"
        yield from _files(where, volume)
        yield from _mode(f"{where}.projected.defaultMode", (volume.get("projected") or {}).get("defaultMode"))
        for number, source in enumerate((volume.get("projected") or {}).get("sources") or []):
            for kind in source:
                if kind not in PROJECTED_SOURCES:
                    yield f"{where}.projected.sources", f"Invalid value: this cluster cannot project {kind}"
            yield from _files(f"{where}.projected.sources[{number}]", source)


def _files(at: str, source: dict[str, Any]) -> Iterator[Problem]:
    """Checks the items that become files of a volume or of a projected source."""
    for kind in PROJECTED_SOURCES:
        reference = source.get(kind) or {}
        yield from _mode(f"{at}.{kind}.defaultMode", reference.get("defaultMode"))
        for index, item in enumerate(reference.get("items") or []):
            where = f"{at}.{kind}.items[{index}]"
            yield from _mode(f"{where}.mode", item.get("mode"))
            for needed in ("path",) if kind == "downwardAPI" else ("key", "path"):
                if not item.get(needed):
                    yield f"{where}.{needed}", "Required value"
            if kind == "downwardAPI":
                yield from _field_file(where, item)


def _field_file(at: str, item: dict[str, Any]) -> Iterator[Problem]:
    if "resourceFieldRef" in item:
        text = "this cluster writes no resources into files; give them to the container as variables (env.valueFrom)"
        yield f"{at}.resourceFieldRef", f"Forbidden: {text}"
    elif "fieldRef" not in item:
        yield f"{at}.fieldRef", "Required value"
    else:
        yield from _field(f"{at}.fieldRef.fieldPath", item["fieldRef"])


def _mode(at: str, mode: Any) -> Iterator[Problem]:
    if mode is not None and not (isinstance(mode, int) and 0 <= mode <= HIGHEST_MODE):
        yield at, f"Invalid value: {mode!r}: want a number of 0 to {HIGHEST_MODE} (octal 0777)"


def _container(at: str, container: dict[str, Any], volumes: set[Any]) -> Iterator[Problem]:
    name = container.get("name", "")
    if name == XCOM_SIDECAR:
        text = (
            "this cluster runs no XCom sidecar: its exec would signal processes outside the pod. Set do_xcom_push=False"
        )
        yield f"{at}.name", f"Invalid value: {name!r}: {text}"
    if not DNS_LABEL.match(name):
        yield f"{at}.name", f"Invalid value: {name!r}: want a DNS label"
    if not container.get("image"):
        yield f"{at}.image", "Required value"
    yield from refused(at, container, REFUSED_CONTAINER_FIELDS)
    if (container.get("securityContext") or {}).get("privileged"):
        yield f"{at}.securityContext.privileged", "Forbidden: this cluster runs no privileged containers"
    yield from refused(f"{at}.lifecycle", container.get("lifecycle") or {}, REFUSED_HOOKS)
    yield from _resources(at, container.get("resources") or {})
    yield from _ports(at, container.get("ports") or [])
    yield from _environment(at, container)
    yield from _mounts(at, container.get("volumeMounts") or [], volumes)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        yield from refused(f"{at}.{probe}", container.get(probe) or {}, REFUSED_PROBE_FIELDS)


def _ports(at: str, ports: list[dict[str, Any]]) -> Iterator[Problem]:
    for index, port in enumerate(ports):
        if port.get("hostPort"):
            yield f"{at}.ports[{index}].hostPort", "Forbidden: reach a pod by its own address or by a Service"


def _resources(at: str, resources: dict[str, Any]) -> Iterator[Problem]:
    for part in ("limits", "requests"):
        for name in resources.get(part) or {}:
            if name not in KNOWN_RESOURCES and "/" not in name:
                yield f"{at}.resources.{part}[{name}]", f"Invalid value: this cluster has no {name}"
    yield from _extended(at, resources)
    if resources.get("claims"):
        yield f"{at}.resources.claims", "Forbidden: this cluster has no device claims"


def _extended(at: str, resources: dict[str, Any]) -> Iterator[Problem]:
    """Extended resources are whole, and nobody may use more of them than was asked for."""
    limits, requests = (resources.get(part) or {} for part in ("limits", "requests"))
    for name in sorted(name for name in {*limits, *requests} if "/" in name):
        if name not in limits:
            yield (
                f"{at}.resources.limits",
                f"Required value: Limit must be set for non overcommitable resources: {name}",
            )
        elif requests.get(name, limits[name]) != limits[name]:
            yield f"{at}.resources.requests", f"Invalid value: must be equal to {name} limit of {limits[name]}"
        elif not str(limits[name]).isdecimal():
            yield f"{at}.resources.limits[{name}]", f"Invalid value: {limits[name]!r}: must be an integer"


def _environment(at: str, container: dict[str, Any]) -> Iterator[Problem]:
    for index, entry in enumerate(container.get("env") or []):
        where = f"{at}.env[{index}]"
        if not entry.get("name"):
            yield f"{where}.name", "Required value"
        if not isinstance(entry.get("value", ""), str | None):
            yield f"{where}.value", f"Invalid value: {entry['value']!r}: want a string"
        source = entry.get("valueFrom") or {}
        for kind in source:
            if kind not in ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"):
                yield f"{where}.valueFrom.{kind}", f"Invalid value: this cluster has no {kind}"
        if "fieldRef" in source:
            yield from _field(f"{where}.valueFrom.fieldRef.fieldPath", source["fieldRef"])


def _field(at: str, reference: dict[str, Any]) -> Iterator[Problem]:
    path = reference.get("fieldPath", "")
    if path.partition("[")[0] not in FIELD_PATHS:
        yield at, f"Unsupported value: {path!r}: want one of {', '.join(FIELD_PATHS)}"


def _mounts(at: str, mounts: list[dict[str, Any]], volumes: set[Any]) -> Iterator[Problem]:
    for index, mount in enumerate(mounts):
        where = f"{at}.volumeMounts[{index}]"
        if mount.get("name") not in volumes:
            yield f"{where}.name", f'Not found: "{mount.get("name")}"'
        if not str(mount.get("mountPath", "")).startswith("/"):
            yield f"{where}.mountPath", f"Invalid value: {mount.get('mountPath')!r}: want an absolute path"
        if mount.get("subPathExpr"):
            yield f"{where}.subPathExpr", "Forbidden: use subPath"
        if ".." in str(mount.get("subPath", "")).split("/"):
            yield f"{where}.subPath", "Invalid value: must not contain '..'"
