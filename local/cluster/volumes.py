"""Folders that stand for a pod's volumes."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from local.cluster.environment import ConfigurationError, Lookup, Paths, content, field_value
from local.cluster.resources import CLAIMS, CONFIG_MAPS, SECRETS, Object

DEFAULT_MODE = 0o644  # as Kubernetes has it; the folders above keep everybody else out
File = tuple[str, bytes, int | None]


class Volumes:
    """The volumes of one pod; `folder` is the pod's, `claims` holds what outlives pods."""

    def __init__(self, pod: Object, folder: Path, claims: Path, lookup: Lookup) -> None:
        self._pod, self._lookup = pod, lookup
        self._folder, self._claims = folder / "volumes", claims

    def prepare(self) -> None:
        """Make every volume; those that hold files get them once.

        Raises:
            ConfigurationError: a ConfigMap, a Secret, a key or a claim is missing.
        """
        for volume in self._pod["spec"].get("volumes") or []:
            folder = self._place(volume)
            files = [] if "emptyDir" in volume else list(self._files(volume))
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name, data, mode in files:
                _write(folder, name, data, DEFAULT_MODE if mode is None else mode)

    def paths(self, container: Mapping[str, Any], termination_log: Path) -> Paths:
        """Where a container's mounts and its termination log really are."""
        places = {volume["name"]: self._place(volume) for volume in self._pod["spec"].get("volumes") or []}
        real = {container.get("terminationMessagePath") or "/dev/termination-log": termination_log}
        for mount in container.get("volumeMounts") or []:
            place = places[mount["name"]]
            if mount.get("subPath"):
                place /= mount["subPath"]
                if not place.exists():
                    place.mkdir(parents=True)
            real[mount["mountPath"].rstrip("/") or "/"] = place
        return Paths(real)

    def _place(self, volume: Mapping[str, Any]) -> Path:
        if "persistentVolumeClaim" in volume:
            claim = str(volume["persistentVolumeClaim"]["claimName"])
            return self._claims / str(self._pod["metadata"]["namespace"]) / claim
        return self._folder / str(volume["name"])

    def _files(self, volume: Mapping[str, Any]) -> Iterator[File]:
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
            if self._lookup(CLAIMS, name) is None:
                raise ConfigurationError(f'persistentvolumeclaim "{name}" not found')
            return
        if "projected" not in volume:
            yield from self._source(volume)
            return
        default = volume["projected"].get("defaultMode")
        for source in volume["projected"].get("sources") or []:
            for name, data, mode in self._source(source):
                yield name, data, default if mode is None else mode

    def _source(self, source: Mapping[str, Any]) -> Iterator[File]:
        if "configMap" in source:
            yield from self._keyed(source["configMap"], source["configMap"].get("name", ""), "configmap")
        if "secret" in source:
            reference = source["secret"]
            yield from self._keyed(reference, reference.get("secretName") or reference.get("name", ""), "secret")
        if "downwardAPI" in source:
            for item in source["downwardAPI"].get("items") or []:
                text = field_value(self._pod, item["fieldRef"]["fieldPath"])
                yield item["path"], text.encode(), item.get("mode", source["downwardAPI"].get("defaultMode"))

    def _keyed(self, reference: Mapping[str, Any], name: str, kind: str) -> Iterator[File]:
        found = self._lookup(SECRETS if kind == "secret" else CONFIG_MAPS, name)
        if found is None:
            if reference.get("optional"):
                return
            raise ConfigurationError(f'{kind} "{name}" not found')
        data, default = dict(content(found)), reference.get("defaultMode")
        items = reference.get("items")
        if items is None:
            yield from ((key, value, default) for key, value in data.items())
            return
        for item in items:
            if item["key"] in data:
                yield item["path"], data[item["key"]], item.get("mode", default)
            elif not reference.get("optional"):
                raise ConfigurationError(f"references non-existent {kind} key: {item['key']}")


def discard_claim(claims: Path, namespace: str, name: str) -> None:
    """Delete what a claim held."""
    shutil.rmtree(claims / namespace / name, ignore_errors=True)


def _write(folder: Path, name: str, data: bytes, mode: int) -> None:
    target = folder / name
    if not target.resolve().is_relative_to(folder.resolve()):
        raise ConfigurationError(f"the path {name!r} leaves its volume")
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    target.chmod(mode)
