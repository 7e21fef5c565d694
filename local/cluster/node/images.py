"""Maps image names to a search path, variables and a working directory of this machine."""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
log = logging.getLogger(__name__)
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Image:
    """One row of the table, placeholders filled."""

    path: str
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    command: tuple[str, ...] = ()
    pull_s: float = 0.0
    """How long the node takes to pull it, once; with 0 it is on the node already."""
    programs: tuple[Path, ...] = ()
    """Its own folders of programs. Without one of them the image is not built, and cannot be pulled."""

    @property
    def missing(self) -> Path | None:
        """The first of its own folders that does not exist."""
        return next((folder for folder in self.programs if not folder.is_dir()), None)


class ImageTable(Mapping[str, Image]):
    """The images of a file, those that are built. It is read again when it changes: added images can be pulled then."""

    def __init__(self, file: Path, places: Mapping[str, Path]) -> None:
        """Read `file`; `places` gives the values of placeholders such as `${NAME}`.

        Raises:
            ValueError: a placeholder or a field that does not exist.
        """
        self.file, self._places = file, places
        self._read_at = file.stat().st_mtime_ns
        self._images = load_images(file, places)

    def __getitem__(self, name: str) -> Image:
        """The image of that name."""
        image = self._current()[name]
        if image.missing is not None:
            raise KeyError(name)
        return image

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return (name for name, image in self._current().items() if image.missing is None)

    def __len__(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)

    def why_absent(self, name: str) -> str:
        """Why the table does not have an image: a folder that is missing, or that no row names it."""
        image = self._current().get(name)
        if image is not None and image.missing is not None:
            return f"it is not built, because {image.missing} does not exist"
        return f"this cluster knows only {', '.join(sorted(self))} ({self.file})"

    def _current(self) -> dict[str, Image]:
        try:
            changed_at = self.file.stat().st_mtime_ns
            if changed_at != self._read_at:
                self._read_at, self._images = changed_at, load_images(self.file, self._places)
        except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
            log.exception("%s cannot be read; its last content stays in use", self.file)
        return self._images


def load_images(file: Path, places: Mapping[str, Path]) -> dict[str, Image]:
    """Read the table; `places` gives the values of placeholders such as `${NAME}`.

    Raises:
        ValueError: a placeholder or a field that does not exist.
    """

    def fill(text: str) -> str:
        unknown = set(_PLACEHOLDER.findall(text)) - set(places)
        if unknown:
            raise ValueError(f"{file}: unknown placeholder {sorted(unknown)} in {text!r}; there are {sorted(places)}")
        return _PLACEHOLDER.sub(lambda match: str(places[match[1]]), text)

    rows: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())["images"]
    return {name: _image(name, row or {}, fill) for name, row in rows.items()}


def _image(name: str, row: dict[str, Any], fill: Any) -> Image:
    unknown = set(row) - {"path_prefix", "env", "working_dir", "command", "pull_s"}
    if unknown:
        raise ValueError(f"image {name}: unknown fields {sorted(unknown)}")
    directory, own = row.get("working_dir"), [fill(part) for part in row.get("path_prefix", [])]
    return Image(
        path=":".join([*own, *SYSTEM_PATH]),
        env={key: fill(value) for key, value in row.get("env", {}).items()},
        working_dir=fill(directory) if directory else None,
        command=tuple(fill(part) for part in row.get("command", [])),
        pull_s=float(row.get("pull_s", 0)),
        programs=tuple(map(Path, own)),
    )
