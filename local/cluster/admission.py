"""What the server does not take: malformed objects, and what it could only pretend to do.

A field whose absence would change what a pod means is refused. What is taken and only recorded stands in the package's
docstring.
"""

import re
from collections.abc import Iterator
from typing import Any

from local.cluster.node import NAME
from local.cluster.resources import DEPLOYMENTS, PODS, REPLICA_SETS, SERVICES, Object, Resource
from local.cluster.selectors import matches_spec
from local.cluster.status import invalid

Problem = tuple[str, str]

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
    "hostPID": "there is no process isolation that could be lifted",
    "hostIPC": "there is no isolation that could be lifted",
    "hostAliases": "this cluster cannot change how a process resolves names",
    "runtimeClassName": "this cluster runs local processes only",
    "ephemeralContainers": "this cluster has none",
    "readinessGates": "nothing here would ever open them",
    "schedulingGates": "nothing here would ever open them",
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
REFUSED_SERVICE_FIELDS = {"externalIPs": "Services of this cluster listen on their clusterIP only"}
HIGHEST_MODE = 0o777
XCOM_SIDECAR = "airflow-xcom-sidecar"
NAME_LENGTH = 253
LABEL_LENGTH = 63
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
_PATH_NAME_GROUPS = ("rbac.authorization.k8s.io",)  # names of roles may hold colons


def check(resource: Resource, item: Object) -> None:
    """Refuse `item` with everything that is wrong with it.

    Raises:
        ApiError: 422.
    """
    problems = list(_metadata(resource, item))
    if resource is PODS:
        problems += _pod_spec("spec", item.get("spec"))
    elif resource in (DEPLOYMENTS, REPLICA_SETS):
        problems += _workload(item.get("spec") or {})
    elif resource is SERVICES:
        problems += _service(item.get("spec") or {})
    if problems:
        raise invalid(resource, item["metadata"].get("name", ""), problems)


def check_update(resource: Resource, old: Object, new: Object) -> None:
    """Refuse changes that Kubernetes refuses.

    Raises:
        ApiError: 422.
    """
    check(resource, new)
    problems: list[Problem] = []
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if resource is PODS and before != after:
        changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        problems.append(("spec", f"Forbidden: this cluster changes no field of a running pod ({', '.join(changed)})"))
    if resource in (DEPLOYMENTS, REPLICA_SETS) and before.get("selector") != after.get("selector"):
        problems.append(("spec.selector", "Invalid value: field is immutable"))
    if resource is SERVICES and before.get("clusterIP") != after.get("clusterIP"):
        problems.append(("spec.clusterIPs[0]", "Invalid value: may not change once set"))
    if old.get("immutable") and any(old.get(part) != new.get(part) for part in ("data", "binaryData", "immutable")):
        problems.append(("data", "Forbidden: field is immutable when `immutable` is set"))
    if problems:
        raise invalid(resource, new["metadata"]["name"], problems)


def _metadata(resource: Resource, item: Object) -> Iterator[Problem]:
    meta = item["metadata"]
    name = meta.get("name", "")
    pattern = _DNS_LABEL if resource.kind in ("Service", "Namespace") else _SUBDOMAIN
    length = LABEL_LENGTH if pattern is _DNS_LABEL else NAME_LENGTH
    if resource.group not in _PATH_NAME_GROUPS and not (pattern.match(name) and len(name) <= length):
        want = f"want lower case letters, digits, '-' (and '.'), at most {length}"
        yield "metadata.name", f"Invalid value: {name!r}: {want}"
    for key, value in (meta.get("labels") or {}).items():
        good = isinstance(value, str) and _LABEL_VALUE.match(value) and len(value) <= LABEL_LENGTH
        if not good or len(key.rpartition("/")[2]) > LABEL_LENGTH:
            yield "metadata.labels", f"Invalid value: {key}={value!r}: at most {LABEL_LENGTH} of [A-Za-z0-9_.-]"


def _workload(spec: dict[str, Any]) -> Iterator[Problem]:
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not matches_spec(spec.get("selector"), labels):
        yield "spec.template.metadata.labels", f"Invalid value: {labels}: `selector` does not match template `labels`"
    yield from _pod_spec("spec.template.spec", template.get("spec"))
    policy = (template.get("spec") or {}).get("restartPolicy", "Always")
    if policy != "Always":
        yield "spec.template.spec.restartPolicy", f'Unsupported value: "{policy}": supported values: "Always"'


def _service(spec: dict[str, Any]) -> Iterator[Problem]:
    if spec.get("type") == "NodePort":
        yield "spec.type", 'Unsupported value: "NodePort": this cluster has no node ports; use ClusterIP'
    if not spec.get("ports") and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield "spec.ports", "Required value"
    yield from _refused("spec", spec, REFUSED_SERVICE_FIELDS)
    if spec.get("sessionAffinity") not in (None, "None"):
        text = "this cluster gives connections to the endpoints in turn; use None"
        yield "spec.sessionAffinity", f"Unsupported value: {spec['sessionAffinity']!r}: {text}"
    ports = spec.get("ports") or []
    for index, port in enumerate(ports):
        if port.get("protocol", "TCP") != "TCP":
            yield (
                f"spec.ports[{index}].protocol",
                f"Unsupported value: {port['protocol']}: this cluster proxies TCP only",
            )
        if len(ports) > 1 and not port.get("name"):
            yield f"spec.ports[{index}].name", "Required value"


def _pod_spec(at: str, spec: Any) -> Iterator[Problem]:
    if not isinstance(spec, dict) or not spec.get("containers"):
        yield f"{at}.containers", "Required value"
        return
    yield from _refused(at, spec, REFUSED_POD_FIELDS)
    if spec.get("restartPolicy", "Always") not in ("Always", "OnFailure", "Never"):
        yield f"{at}.restartPolicy", f"Unsupported value: {spec['restartPolicy']!r}"
    if spec.get("schedulerName", "default-scheduler") != "default-scheduler":
        yield f"{at}.schedulerName", f"Invalid value: {spec['schedulerName']!r}: this cluster has no other scheduler"
    if spec.get("dnsPolicy") == "None":
        yield f"{at}.dnsPolicy", "Unsupported value: 'None': pods resolve names as this machine does"
    if spec.get("nodeName") not in (None, NAME):
        yield f"{at}.nodeName", f"Invalid value: {spec['nodeName']!r}: this cluster has one node, {NAME}"
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
            if kind == "initContainers" and container.get("restartPolicy"):
                yield f"{where}.restartPolicy", "Invalid value: this cluster runs no sidecar init containers"


def _volumes(at: str, volumes: list[dict[str, Any]]) -> Iterator[Problem]:
    for index, volume in enumerate(volumes):
        where = f"{at}.volumes[{index}]"
        if not _DNS_LABEL.match(volume.get("name", "")):
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
    """What the files of a volume or of a projected source are made of."""
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
    if not _DNS_LABEL.match(name):
        yield f"{at}.name", f"Invalid value: {name!r}: want a DNS label"
    if not container.get("image"):
        yield f"{at}.image", "Required value"
    yield from _refused(at, container, REFUSED_CONTAINER_FIELDS)
    if (container.get("securityContext") or {}).get("privileged"):
        yield f"{at}.securityContext.privileged", "Forbidden: this cluster runs no privileged containers"
    yield from _refused(f"{at}.lifecycle", container.get("lifecycle") or {}, REFUSED_HOOKS)
    yield from _resources(at, container.get("resources") or {})
    yield from _ports(at, container.get("ports") or [])
    yield from _environment(at, container)
    yield from _mounts(at, container.get("volumeMounts") or [], volumes)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        yield from _refused(f"{at}.{probe}", container.get(probe) or {}, REFUSED_PROBE_FIELDS)


def _ports(at: str, ports: list[dict[str, Any]]) -> Iterator[Problem]:
    for index, port in enumerate(ports):
        if port.get("hostPort"):
            yield f"{at}.ports[{index}].hostPort", "Forbidden: reach a pod by its own address or by a Service"


def _resources(at: str, resources: dict[str, Any]) -> Iterator[Problem]:
    for part in ("limits", "requests"):
        for name in resources.get(part) or {}:
            if name not in KNOWN_RESOURCES:
                yield f"{at}.resources.{part}[{name}]", f"Invalid value: this cluster has no {name}"
    if resources.get("claims"):
        yield f"{at}.resources.claims", "Forbidden: this cluster has no device claims"


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


def _refused(at: str, spec: dict[str, Any], fields: dict[str, str]) -> Iterator[Problem]:
    for field, why in fields.items():
        if spec.get(field):
            yield f"{at}.{field}", f"Forbidden: {why}"
