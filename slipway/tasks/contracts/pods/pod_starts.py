"""Whether a pod that has not started yet will ever start. Pure.

The kubelet keeps trying to start a pod that lacks a Secret, a ConfigMap or an image (Kubernetes 1.36,
pkg/kubelet/kuberuntime, pkg/kubelet/images). Each of these states may also pass: the object is being
created, the registry is busy. So a state counts as a failure once it has lasted for its grace period.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from slipway.tasks.contracts.api_keys import KEYS_VOLUME, OWN_KEY_VARIABLE
from slipway.tasks.contracts.pods.pod_failures import Pod, PodFailure
from slipway.tasks.contracts.pods.start_phases import unscheduled

Event = dict[str, Any]
"""An Event of a pod as JSON."""

CONFIGURATION_GRACE_S = 15.0
"""Mounting is tried again after 0.5, 1, 2, 4 and 8 s (pkg/util/goroutinemap/exponentialbackoff)."""
PULL_GRACE_S = 75.0
"""An image is pulled again after 10, 20 and 40 s (MaxContainerBackOff and its base in pkg/kubelet/kubelet.go)."""
RUNTIME_GRACE_S = 60.0

WAITING = {
    "InvalidImageName": ("image name", 0.0),
    "ErrImageNeverPull": ("image name", 0.0),
    "ErrImagePull": ("image pull", PULL_GRACE_S),
    "ImagePullBackOff": ("image pull", PULL_GRACE_S),
    "ImageInspectError": ("image pull", PULL_GRACE_S),
    "CreateContainerConfigError": ("configuration", CONFIGURATION_GRACE_S),
    "CreateContainerError": ("container", RUNTIME_GRACE_S),
    "PreCreateHookError": ("container", RUNTIME_GRACE_S),
    "RunContainerError": ("container", RUNTIME_GRACE_S),
}
"""Reasons of a waiting container: the kind of failure, and its grace period in seconds."""

SITE_CONFIG_MAP, SITE_KEY = "slipway-site", "site.yaml"
MISSING = re.compile(r'(?P<kind>configmap|secret)s? "(?P<name>[^"]+)" not found', re.IGNORECASE)
MISSING_KEY = re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>ConfigMap|Secret) [^/\s]+/(?P<name>\S+)")
MISSING_FILE = re.compile(r"references non-existent (config|secret) key")
MOUNT, ATTACH = "FailedMount", "FailedAttachVolume"
CLAIM = re.compile(r'persistentvolumeclaim "(?P<name>[^"]+)" (not found|is being deleted|bound to non-existent .*)')
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
"""What the scheduler says of a claim (PreFilter of pkg/scheduler/framework/plugins/volumebinding/volume_binding.go)."""
BINDING_GRACE_S = 60.0
"""A claim that exists is bound within a period of the controller, 15 s, or once its provisioner is done."""
ELSEWHERE = re.compile(r"Multi-Attach error|ReadWriteOncePod access mode")
"""A claim that another pod has: of the attach-detach controller, whose volume is attached to another node
(pkg/controller/volume/attachdetach/reconciler), and of the scheduler (plugins/volumerestrictions)."""
ELSEWHERE_GRACE_S = 120.0
"""A pod that ends leaves its volume attached until its kubelet has unmounted it."""


@dataclass
class StartWatch:
    """The obstacles to one pod's start, and when each was first seen."""

    seen_since: dict[str, float] = field(default_factory=dict)

    def look(self, pod: Pod, events: Iterable[Event], now_s: float) -> PodFailure | None:
        """The failure that will keep the pod from starting; None while it may still start.

        Args:
            pod: the pod now.
            events: the pod's warning events.
            now_s: a monotonic clock's time.
        """
        for kind, grace_s, what, create in _obstacles(pod, events):
            since = self.seen_since.setdefault(kind, now_s)
            if now_s - since >= grace_s:
                return PodFailure(kind, what, create=create)
        return None


def _obstacles(pod: Pod, events: Iterable[Event]) -> Iterator[tuple[str, float, str, str]]:
    """Yield kind, grace period, description and remedy of each obstacle to the pod's start."""
    status = pod.get("status") or {}
    for each in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in WAITING:
            kind, grace_s = WAITING[waiting["reason"]]
            message = (waiting.get("message") or "").strip() or "no message"
            what = f"container {each['name']} cannot start: {waiting['reason']}: {message}"
            yield kind, grace_s, what, _create(pod, message)
    yield from _obstacles_of_claims(pod, unscheduled(pod) or "", events)
    for event in events:
        message = (event.get("message") or "").strip()
        if event.get("reason") == MOUNT and (MISSING.search(message) or MISSING_FILE.search(message)):
            yield (
                "configuration",
                CONFIGURATION_GRACE_S,
                f"a volume cannot be mounted: {message}",
                _create(pod, message),
            )


def _obstacles_of_claims(pod: Pod, unscheduled: str, events: Iterable[Event]) -> Iterator[tuple[str, float, str, str]]:
    """The same of its PersistentVolumeClaims: `unscheduled` is the scheduler's message."""
    namespace = pod["metadata"].get("namespace", "default")
    if missing := CLAIM.search(unscheduled):
        what, claim = missing[0].partition(". preemption")[0], f"{namespace}/{missing['name']}"
        yield "claim", CONFIGURATION_GRACE_S, f"the pod cannot be placed: {what}", f"Create claim {claim}"
    elif UNBOUND in unscheduled:
        names = ", ".join(f"{namespace}/{name}" for name in _claims(pod))
        yield "claim", BINDING_GRACE_S, f"the pod cannot be placed: {UNBOUND}", f"Bind claim {names}"
    attaching = [str(event.get("message")) for event in events if event.get("reason") == ATTACH]
    if held := next((text for text in (unscheduled, *attaching) if ELSEWHERE.search(text)), None):
        yield (
            "claim in use",
            ELSEWHERE_GRACE_S,
            f"a volume cannot be attached: {held.partition('. preemption')[0].strip()}",
            "",
        )


def _claims(pod: Pod) -> list[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or []
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if each.get("persistentVolumeClaim")]


def _create(pod: Pod, message: str) -> str:
    """How to create the missing object: a command where there is one."""
    namespace = pod["metadata"].get("namespace", "default")
    if key := MISSING_KEY.search(message):
        return f"Add the key {key['key']} to {key['kind']} {namespace}/{key['name']}."
    match = MISSING.search(message)
    if match is None:
        return "Correct the site file or the spec according to the message."
    kind, name = match["kind"].lower(), match["name"]
    command = _key_command(pod, name) if kind == "secret" else None
    return f"Create it: {command or _kubectl(kind, namespace, name, _keys(pod, name))}."


def _kubectl(kind: str, namespace: str, name: str, keys: list[str]) -> str:
    create = f"kubectl -n {namespace} create {'secret generic' if kind == 'secret' else kind} {name}"
    if (kind, name) == ("configmap", SITE_CONFIG_MAP):
        return f"{create} --from-file={SITE_KEY}=<site file>"
    return " ".join([create, *(f"--from-literal={key}=<value>" for key in keys or ["<key>"])])


def _key_command(pod: Pod, secret: str) -> str | None:
    """The command that makes a Secret of API keys; None for another Secret."""
    if secret == _keys_of_clients(pod):
        return "slipway key create NAME"
    return "slipway key create slipway --for-steps" if _keys(pod, secret) == [OWN_KEY_VARIABLE] else None


def _keys_of_clients(pod: Pod) -> str | None:
    """The Secret of API keys that the pod's front asks for."""
    volumes = {each["name"]: each.get("secret") or {} for each in (pod.get("spec") or {}).get("volumes") or []}
    return volumes.get(KEYS_VOLUME, {}).get("secretName")


def _keys(pod: Pod, secret: str) -> list[str]:
    """Keys of a Secret that the pod's containers read."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    sources = [entry.get("valueFrom") or {} for each in containers for entry in each.get("env") or []]
    references = [source["secretKeyRef"] for source in sources if source.get("secretKeyRef")]
    return sorted({reference["key"] for reference in references if reference["name"] == secret})
