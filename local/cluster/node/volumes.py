"""The folders behind a pod's volumes."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..objects.resources import CLAIMS, CONFIG_MAPS, SECRETS, Object
from .confinement import View
from .environment import ConfigurationError, Lookup, MountError, Paths, content, field_value

DU_BLOCK_BYTES = 512  # of st_blocks, stat(2)
DEFAULT_MODE = 0o644  # the default of Kubernetes; the folders above keep everybody else out
KEYED = {"configMap", "secret", "projected"}
File = tuple[str, bytes, int | None]


class Volumes:
    """The volumes of one pod; `folder` is the pod's, `claims` is the folder of claims, which outlive pods."""

    def __init__(self, pod: Object, folder: Path, claims: Path, lookup: Lookup) -> None:
        self._pod, self._lookup = pod, lookup
        self._folder, self._claims = folder / "volumes", claims

    def prepare(self) -> None:
        """Create every volume, or write again what its ConfigMap or Secret holds now.

        Raises:
            MountError: a ConfigMap, a Secret, a key or a claim is missing. The other volumes are created.
        """
        problems = []
        for volume in self._pod["spec"].get("volumes") or []:
            try:
                self._make(volume)
            except ConfigurationError as error:
                problems.append((str(volume["name"]), str(error)))
        if problems:
            raise MountError(problems)

    @property
    def follows(self) -> bool:
        """Whether a volume shows a ConfigMap or a Secret, which may change."""
        return any(KEYED & {*volume} for volume in self._pod["spec"].get("volumes") or [])

    def _make(self, volume: Mapping[str, Any]) -> None:
        folder = self._place(volume)
        files = [] if "emptyDir" in volume else list(self._files(volume))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, data, mode in files:
            _write(folder, name, data, DEFAULT_MODE if mode is None else mode)
        if KEYED & {*volume}:
            _remove_others(folder, {folder / name for name, _, _ in files})

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

    def view(self, container: Mapping[str, Any], termination_log: Path, method: str, kept: Iterable[Path]) -> View:
        """The view of a container with a read-only root file system."""
        writable_volumes = {
            volume["name"]
            for volume in self._pod["spec"].get("volumes") or []
            if "emptyDir" in volume or "persistentVolumeClaim" in volume
        }
        real = self.paths(container, termination_log).real
        writable, mounts = [str(termination_log)], []
        for mount in container.get("volumeMounts") or []:
            target = mount["mountPath"].rstrip("/")
            may_write = mount["name"] in writable_volumes and not mount.get("readOnly")
            if may_write:
                writable.append(str(real[target]))
            if Path(target).is_dir():
                mounts.append((str(real[target]), target, may_write))
        # a parent before what is mounted inside it
        return View(method, tuple(writable), tuple(sorted(mounts, key=lambda mount: mount[1])), tuple(map(str, kept)))

    def used_bytes(self, volume: Mapping[str, Any]) -> int:
        """Disk space that an emptyDir takes, as du counts it."""
        seen: dict[int, int] = {}
        for folder, _, names in os.walk(self._place(volume)):
            for name in (".", *names):
                with contextlib.suppress(FileNotFoundError):
                    entry = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - a hundred times as fast as Path
                    seen[entry.st_ino] = entry.st_blocks * DU_BLOCK_BYTES
        return sum(seen.values())

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
        source_object = self._lookup(SECRETS if kind == "secret" else CONFIG_MAPS, name)
        if source_object is None:
            if reference.get("optional"):
                return
            raise ConfigurationError(f'{kind} "{name}" not found')
        data, default = dict(content(source_object)), reference.get("defaultMode")
        items = reference.get("items")
        if items is None:
            yield from ((key, value, default) for key, value in data.items())
            return
        for item in items:
            if item["key"] in data:
                yield item["path"], data[item["key"]], item.get("mode", default)
            elif not reference.get("optional"):
                what = (
                    "configmap references non-existent config"
                    if kind == "configmap"
                    else "references non-existent secret"
                )
                raise ConfigurationError(f"{what} key: {item['key']}")


def discard_claim(claims: Path, namespace: str, name: str) -> None:
    """Delete the data of a claim."""
    shutil.rmtree(claims / namespace / name, ignore_errors=True)


def _write(folder: Path, name: str, data: bytes, mode: int) -> None:
    target = folder / name
    if not target.resolve().is_relative_to(folder.resolve()):
        raise ConfigurationError(f"the path {name!r} is outside its volume")
    if target.exists() and target.read_bytes() == data:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.new")
    new.write_bytes(data)
    new.chmod(mode)
    new.replace(target)  # a reader has the old one or the new one whole


def _remove_others(folder: Path, kept: set[Path]) -> None:
    for file in [file for file in folder.rglob("*") if file.is_file() and file not in kept]:
        file.unlink()
