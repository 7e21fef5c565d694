"""Pod Security admission: what a namespace's labels permit its pods to do.

The checks, their order and their messages are those of the latest policy version of Kubernetes 1.35:
https://github.com/kubernetes/pod-security-admission/tree/v0.35.0/policy. Labels that name an older version are
evaluated as the latest. Checks of fields that this cluster refuses anyway (host namespaces, hostPath, hostPort,
privileged, other volume types) are not repeated here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..objects.resources import DEPLOYMENTS, NAMESPACES, PODS, REPLICA_SETS, Object, Resource
from ..objects.status import forbidden
from ..objects.store import Store

PREFIX = "pod-security.kubernetes.io/"
LEVELS = ("privileged", "baseline", "restricted")
DEFAULT_CAPABILITIES = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}
SAFE_SYSCTLS = {
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range"),
    *("net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time"),
    *("net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes"),
    *("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
}
SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
CONFINED = ("RuntimeDefault", "Localhost")

Spec = Mapping[str, Any]
Violation = tuple[str, str]
Check = Callable[[Spec], Violation | None]


def check(store: Store, pod: Object) -> None:
    """Refuse a pod that its namespace's enforced level does not allow.

    Raises:
        ApiError: 403.
    """
    if text := _violations(store, pod["metadata"]["namespace"], "enforce", pod["spec"]):
        raise forbidden(PODS, pod["metadata"]["name"], f"violates {text}")


def warning(store: Store, resource: Resource, item: Object) -> str:
    """The warning for the client; empty if the namespace's `warn` level allows the pod or the template."""
    if resource is PODS:
        spec = item["spec"]
    elif resource in (DEPLOYMENTS, REPLICA_SETS):
        spec = item["spec"]["template"]["spec"]
    else:
        return ""
    text = _violations(store, item["metadata"]["namespace"], "warn", spec)
    return f"would violate {text}" if text else ""


def label_problems(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Labels whose level does not exist."""
    for mode in ("enforce", "audit", "warn"):
        level = labels.get(PREFIX + mode, LEVELS[0])
        if level not in LEVELS:
            yield f"metadata.labels[{PREFIX}{mode}]", f'Invalid value: "{level}": must be one of {", ".join(LEVELS)}'


def _violations(store: Store, namespace: str, mode: str, spec: Spec) -> str:
    labels = (store.need(NAMESPACES, "", namespace)["metadata"].get("labels")) or {}
    level = labels.get(PREFIX + mode, LEVELS[0])
    if level == LEVELS[0]:
        return ""
    checks = BASELINE if level == LEVELS[1] else RESTRICTED
    violations = [violation for one in checks if (violation := one(spec)) is not None]
    listed = ", ".join(f"{reason} ({detail})" for reason, detail in violations)
    return f'PodSecurity "{level}:{labels.get(f"{PREFIX}{mode}-version", "latest")}": {listed}' if violations else ""


def _app_armor(spec: Spec) -> Violation | None:
    setters, values = _setters(spec, lambda context: _type(context, "appArmorProfile"), CONFINED)
    if not setters:
        return None
    reason = _plural("forbidden AppArmor profile", len(values))
    return reason, f"{setters} must not set AppArmor profile type to {_quoted(values)}"


def _capabilities_baseline(spec: Spec) -> Violation | None:
    added = {name: _added(context) - DEFAULT_CAPABILITIES for name, context in _containers(spec)}
    bad = [name for name, capabilities in added.items() if capabilities]
    if not bad:
        return None
    listed = _quoted(sorted(set().union(*added.values())))
    return "non-default capabilities", f"{_named(bad)} must not include {listed} in securityContext.capabilities.add"


def _probe_hosts(spec: Spec) -> Violation | None:
    hosts = {container["name"]: set(_hosts(container)) for container in _all(spec)}
    bad = sorted(name for name, values in hosts.items() if values)
    if not bad:
        return None
    listed = sorted(set().union(*hosts.values()))
    use = "uses" if len(bad) == 1 else "use"
    what = "probe or lifecycle host"
    return what, f"{_named(bad)} {use} {_plural(what, len(listed))} {_quoted(listed)}"


def _proc_mount(spec: Spec) -> Violation | None:
    mounts = {name: context.get("procMount") or "Default" for name, context in _containers(spec)}
    bad = [name for name, kind in mounts.items() if kind != "Default"]
    if not bad:
        return None
    kinds = _quoted(sorted({mounts[name] for name in bad}))
    return "procMount", f"{_named(bad)} must not set securityContext.procMount to {kinds}"


def _selinux(spec: Spec) -> Violation | None:
    contexts = [("", spec.get("securityContext") or {}), *_containers(spec)]
    options = {name: context.get("seLinuxOptions") or {} for name, context in contexts}
    bad = [name for name, given in options.items() if _selinux_problems([given])]
    if not bad:
        return None
    problems = "; ".join(_selinux_problems([options[name] for name in bad]))
    return "seLinuxOptions", f"{_joined(bad)} set forbidden securityContext.seLinuxOptions: {problems}"


def _selinux_problems(options: Sequence[Mapping[str, str]]) -> list[str]:
    types = sorted({given["type"] for given in options if given.get("type", "") not in SELINUX_TYPES})
    problems = [f"{_plural('type', len(types))} {_quoted(types)}"] if types else []
    return problems + [
        f"{field} may not be set" for field in ("user", "role") if any(one.get(field) for one in options)
    ]


def _seccomp_baseline(spec: Spec) -> Violation | None:
    setters, values = _setters(spec, lambda context: _type(context, "seccompProfile"), CONFINED)
    if not setters:
        return None
    return "seccompProfile", f"{setters} must not set securityContext.seccompProfile.type to {_quoted(values)}"


def _sysctls(spec: Spec) -> Violation | None:
    given = (spec.get("securityContext") or {}).get("sysctls") or []
    bad = [sysctl["name"] for sysctl in given if sysctl["name"] not in SAFE_SYSCTLS]
    return ("forbidden sysctls", ", ".join(bad)) if bad else None


def _privilege_escalation(spec: Spec) -> Violation | None:
    bad = [name for name, context in _containers(spec) if context.get("allowPrivilegeEscalation") is not False]
    if not bad:
        return None
    text = f"{_named(bad)} must set securityContext.allowPrivilegeEscalation=false"
    return "allowPrivilegeEscalation != false", text


def _capabilities_restricted(spec: Spec) -> Violation | None:
    contexts = list(_containers(spec))
    keeping = [
        name for name, context in contexts if "ALL" not in ((context.get("capabilities") or {}).get("drop") or [])
    ]
    added = {name: _added(context) - {"NET_BIND_SERVICE"} for name, context in contexts}
    adding = [name for name, capabilities in added.items() if capabilities]
    texts = []
    if keeping:
        texts.append(f'{_named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        listed = _quoted(sorted(set().union(*added.values())))
        texts.append(f"{_named(adding)} must not include {listed} in securityContext.capabilities.add")
    return ("unrestricted capabilities", "; ".join(texts)) if texts else None


def _non_root(spec: Spec) -> Violation | None:
    if spec.get("hostUsers") is False:
        return None
    setters, _ = _setters(spec, lambda context: context.get("runAsNonRoot"), (True,))
    if setters:
        return "runAsNonRoot != true", f"{setters} must not set securityContext.runAsNonRoot=false"
    if silent := _silent(spec, lambda context: context.get("runAsNonRoot")):
        return "runAsNonRoot != true", f"pod or {_named(silent)} must set securityContext.runAsNonRoot=true"
    return None


def _user(spec: Spec) -> Violation | None:
    if spec.get("hostUsers") is False:
        return None
    setters, _ = _setters(spec, lambda context: True if context.get("runAsUser") == 0 else None, ())
    return ("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def _seccomp_restricted(spec: Spec) -> Violation | None:
    if violation := _seccomp_baseline(spec):
        return violation
    if silent := _silent(spec, lambda context: context.get("seccompProfile")):
        text = (
            f'pod or {_named(silent)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
        )
        return "seccompProfile", text
    return None


BASELINE: tuple[Check, ...] = (
    *(_app_armor, _capabilities_baseline, _probe_hosts, _proc_mount, _selinux, _seccomp_baseline, _sysctls),
)
RESTRICTED: tuple[Check, ...] = (
    *(_app_armor, _probe_hosts, _selinux, _sysctls, _privilege_escalation, _capabilities_restricted, _proc_mount),
    *(_non_root, _user, _seccomp_restricted),
)


def _all(spec: Spec) -> list[Mapping[str, Any]]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _containers(spec: Spec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and security context of each container."""
    for container in _all(spec):
        yield container["name"], container.get("securityContext") or {}


def _setters(spec: Spec, value_of: Callable[[Spec], Any], allowed: Sequence[Any]) -> tuple[str, list[str]]:
    """A phrase that names who sets a value that is not allowed, and those values."""
    contexts = [("", spec.get("securityContext") or {}), *_containers(spec)]
    values = {name: value_of(context) for name, context in contexts}
    bad = [name for name, value in values.items() if value is not None and value not in allowed]
    return _joined(bad), sorted({str(values[name]) for name in bad})


def _silent(spec: Spec, value_of: Callable[[Spec], Any]) -> list[str]:
    """The containers without a setting; none if the pod has it."""
    if value_of(spec.get("securityContext") or {}) is not None:
        return []
    return [name for name, context in _containers(spec) if value_of(context) is None]


def _type(context: Spec, profile: str) -> str | None:
    return None if context.get(profile) is None else str(context[profile].get("type", ""))


def _added(context: Spec) -> set[str]:
    return set((context.get("capabilities") or {}).get("add") or [])


def _hosts(container: Mapping[str, Any]) -> Iterator[str]:
    hooks = container.get("lifecycle") or {}
    probes = [container.get(f"{kind}Probe") for kind in ("liveness", "readiness", "startup")]
    for action in [*probes, hooks.get("postStart"), hooks.get("preStop")]:
        for kind in ("httpGet", "tcpSocket"):
            if host := ((action or {}).get(kind) or {}).get("host"):
                yield host


def _joined(setters: list[str]) -> str:
    """`pod and containers "a", "b"`; the empty name means the pod."""
    names = [name for name in setters if name]
    return " and ".join([*(["pod"] if "" in setters else []), *([_named(names)] if names else [])])


def _named(names: list[str]) -> str:
    return f"{_plural('container', len(names))} {_quoted(names)}"


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
