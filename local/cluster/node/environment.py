"""A container's variables, and the paths of this machine that replace the container's."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..objects.quantities import quantity
from ..objects.resources import CONFIG_MAPS, SECRETS, Object, Resource
from .images import Image

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_KEYED = re.compile(r"^metadata\.(labels|annotations)\['(.+)'\]$")
Lookup = Callable[[Resource, str], Object | None]


class ConfigurationError(Exception):
    """A container refers to something that does not exist yet. As in Kubernetes, its creation is tried again."""


class MountError(Exception):
    """Volumes of a pod cannot be set up yet; `problems` has a text for each, in the wording of the kubelet's events."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        """`problems` are pairs of a volume's name and what is wrong with it."""
        self.problems = [f'MountVolume.SetUp failed for volume "{name}" : {why}' for name, why in problems]
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True)
class Paths:
    """Container paths, and the real paths behind them."""

    real: Mapping[str, Path] = field(default_factory=dict)

    def rewrite(self, text: str) -> str:
        """Replace each container path at the start of `text` or after one of `= : ,`; longer ones first, each once."""
        if not self.real:
            return text
        paths = "|".join(re.escape(path) for path in sorted(self.real, key=len, reverse=True))
        pattern = rf"(?:^|(?<=[=:,]))({paths})(?![A-Za-z0-9._-])"
        return re.sub(pattern, lambda match: str(self.real[match[1]]), text)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand references as Kubernetes does: `$(NAME)` becomes the variable's value, and `$$` a dollar sign.

    A name is anything up to the next `)`. Unknown references and unfinished ones stay as they are
    (kubernetes/kubernetes fde22c3f third_party/forked/golang/expansion/expand.go).
    """

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def declared(pod: Object, container: Mapping[str, Any], lookup: Lookup) -> dict[str, str]:
    """The variables that the pod declares, with container paths unchanged.

    Raises:
        ConfigurationError: a ConfigMap, a Secret or a key is missing and not optional.
    """
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        prefix = source.get("prefix", "")
        variables |= {prefix + key: value for key, value in _all_of(source, lookup).items()}
    for entry in container.get("env") or []:
        if "valueFrom" in entry:
            value = _value_from(entry["valueFrom"], pod, container, lookup)
        else:
            value = expand(entry.get("value") or "", variables)
        if value is not None:
            variables[entry["name"]] = value
    return variables


def process_environment(
    image: Image, own: Mapping[str, str], declared_variables: Mapping[str, str], paths: Paths
) -> dict[str, str]:
    """The process's environment. The pod's variables override the image's, which override `own`."""
    given = {"PATH": image.path, "LANG": "C.UTF-8", **own, **image.env}
    return given | {name: paths.rewrite(value) for name, value in declared_variables.items()}


def field_value(pod: Object, path: str) -> str:
    """The value of a fieldRef."""
    keyed = _KEYED.match(path)
    if keyed:
        return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = pod["metadata"].get(path.partition(".")[2]) or {}
        return "\n".join(f'{key}="{value}"' for key, value in sorted(entries.items()))
    path = {"status.podIPs": "status.podIP", "status.hostIPs": "status.hostIP"}.get(path, path)
    value: Any = pod
    for part in path.split("."):
        value = (value or {}).get(part)
    return "" if value is None else str(value)


def resource_value(pod: Object, container: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """The value of a resourceFieldRef in units of its divisor, rounded up."""
    name = reference.get("containerName")
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])]
    chosen = next((other for other in containers if other["name"] == name), container)
    part, _, kind = reference["resource"].partition(".")
    amount = quantity(((chosen.get("resources") or {}).get(part) or {}).get(kind, "0"))
    return str(int(-(-amount // quantity(reference.get("divisor") or "1"))))


def content(source: Object) -> Iterator[tuple[str, bytes]]:
    """Keys and bytes of a ConfigMap or a Secret."""
    for key, text in (source.get("data") or {}).items():
        yield key, base64.b64decode(text) if source["kind"] == "Secret" else text.encode()
    for key, text in (source.get("binaryData") or {}).items():
        yield key, base64.b64decode(text)


def _all_of(source: Mapping[str, Any], lookup: Lookup) -> dict[str, str]:
    kind, reference = (
        ("secretRef", source["secretRef"]) if "secretRef" in source else ("configMapRef", source["configMapRef"])
    )
    source_object = lookup(SECRETS if kind == "secretRef" else CONFIG_MAPS, reference["name"])
    if source_object is None:
        if reference.get("optional"):
            return {}
        raise ConfigurationError(f'{"secret" if kind == "secretRef" else "configmap"} "{reference["name"]}" not found')
    return {key: data.decode(errors="replace") for key, data in content(source_object)}


def _value_from(source: Mapping[str, Any], pod: Object, container: Mapping[str, Any], lookup: Lookup) -> str | None:
    if "fieldRef" in source:
        return field_value(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return resource_value(pod, container, source["resourceFieldRef"])
    resource = SECRETS if "secretKeyRef" in source else CONFIG_MAPS
    reference = source["secretKeyRef"] if resource is SECRETS else source["configMapKeyRef"]
    source_object = lookup(resource, reference["name"])
    data = dict(content(source_object)) if source_object else {}
    if reference["key"] in data:
        return data[reference["key"]].decode(errors="replace")
    if reference.get("optional"):
        return None
    if source_object is None:
        raise ConfigurationError(f'{resource.kind.lower()} "{reference["name"]}" not found')
    where = f"{resource.kind} {pod['metadata']['namespace']}/{reference['name']}"
    raise ConfigurationError(f"couldn't find key {reference['key']} in {where}")
