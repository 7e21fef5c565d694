"""What an image name stands for: a search path, variables and a working directory of this machine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Image:
    """One row of the table, placeholders filled."""

    path: str
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    command: tuple[str, ...] = ()


def load_images(file: Path, places: Mapping[str, Path]) -> dict[str, Image]:
    """Read the table; `places` fills `${ENVS}` and `${REPO}`.

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
    unknown = set(row) - {"path_prefix", "env", "working_dir", "command"}
    if unknown:
        raise ValueError(f"image {name}: unknown fields {sorted(unknown)}")
    directory = row.get("working_dir")
    return Image(
        path=":".join([*(fill(part) for part in row.get("path_prefix", [])), *SYSTEM_PATH]),
        env={key: fill(value) for key, value in row.get("env", {}).items()},
        working_dir=fill(directory) if directory else None,
        command=tuple(fill(part) for part in row.get("command", [])),
    )
