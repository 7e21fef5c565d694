"""Reads the release specs of a folder, and separates broken ones, so that a mistake stops only one model."""

import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.redaction import bounded, redacted
from slipway.tasks.contracts.spec.fleet import SpecFile, parse_specs
from slipway.tasks.document_files import read_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow.sdk import DAG

    from slipway.tasks.contracts.spec.spec import ReleaseSpec

REASON_CHARS = 1000
REPORT_CHARS = 60_000
"""Limit for the text of all broken specs together: MySQL stores an import error in 64 KiB."""
NAME_LINE = re.compile(rb"""^name:[ \t]+(['"]?)([a-z0-9-]+)\1[ \t]*(?:#.*)?\r?$""", re.MULTILINE)
"""The name of a release as most specs write it. A line without indentation is no part of another value."""


class BrokenSpecsError(Exception):
    """Specs that have no DAG, each with its reason; Airflow shows the text as an import error."""

    def __init__(self, broken: dict[Path, str]) -> None:
        super().__init__(bounded("\n".join(bounded(text, REASON_CHARS) for text in broken.values()), REPORT_CHARS))


@dataclass(frozen=True)
class Specs:
    """The specs in a folder's *.yaml files."""

    good: dict[Path, SpecFile] = field(default_factory=dict)
    broken: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Dags:
    """DAGs by their ids, and the specs that have none."""

    made: "dict[str, DAG]" = field(default_factory=dict)
    broken: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Slice:
    """One of `of` parts of the specs, which a dag-processor of its own reads (docs/scale.md)."""

    number: int
    of: int

    def __contains__(self, name: str) -> bool:
        """Whether the release of this name belongs to the slice; each name belongs to one."""
        return zlib.crc32(name.encode()) % self.of == self.number - 1


def read_specs(folder: Path, only: str | None = None, part: Slice | None = None) -> Specs:
    """Read every *.yaml file of `folder` in alphabetical order; with `only`, those that may describe what is named so.

    With `part`, files of other slices are not parsed; a file whose name is not plain to see is parsed for every slice.
    If two files have the same release name, the second is broken: a name belongs to one DAG and one Service.
    """
    specs = Specs()
    owners: dict[str, Path] = {}
    for path in sorted(folder.glob("*.yaml")):
        spec, reason, name = None, "", None
        try:
            data = read_regular_file(path)
            name = _plain_name(data)
            if only is not None and not _may_describe(only, data, name):
                continue
            if part and name and name not in part:
                continue
            spec = parse_specs(data, str(path))
        except InputError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one file, the other models keep their DAGs
            reason = _unexpected(path, error)
        if part and (name or (spec.name if spec else path.name)) not in part:
            continue
        if spec is None:
            specs.broken[path] = reason
            continue
        if taken := next((each for each in spec.names if each in owners), None):
            specs.broken[path] = (
                f"{path}: name {taken} is taken by {owners[taken]}, expected one spec for each name. Rename one."
            )
            continue
        owners |= dict.fromkeys(spec.names, path)
        specs.good[path] = spec
    return specs


def make_dags(
    folder: Path,
    makers: "Sequence[Callable[[ReleaseSpec, SpecFile], DAG | None]]",
    fleet_makers: "Sequence[Callable[[SpecFile], DAG]]" = (),
    only: str | None = None,
    part: Slice | None = None,
) -> Dags:
    """Make the DAGs of every spec in `folder`, or of its slice; a spec that a maker rejects is broken and has none.

    Args:
        folder: its *.yaml files are the specs.
        makers: each makes a DAG of a model and its file, or returns None for a model that has no such DAG.
        fleet_makers: each makes a DAG of a fleet.
        only: the name of a model or a fleet. Files that do not hold it are not parsed, unless it is found nowhere: YAML
            can write it in other ways.
        part: the slice; None: all specs.
    """
    specs = read_specs(folder, only, part)
    if only is not None and not any(only in file.names for file in specs.good.values()):
        specs = read_specs(folder, part=part)
    dags = Dags(broken=dict(specs.broken))
    for path, file in specs.good.items():
        models = [model for model in file.models if only in {None, model.name}]
        try:
            made = [dag for make in makers for model in models if (dag := make(model, file)) is not None]
            made += [make(file) for make in fleet_makers if file.is_fleet]
            for dag in made:
                dag.validate()  # type: ignore[no-untyped-call]  # Airflow's own
        except Exception as error:  # noqa: BLE001 - as above
            dags.broken[path] = str(error) if isinstance(error, InputError) else _unexpected(path, error)
        else:
            dags.made.update({dag.dag_id: dag for dag in made})
    return dags


def _may_describe(only: str, data: bytes, name: str | None) -> bool:
    """Whether a file may describe the model or fleet; that of a fleet holds only the beginning of a member's name."""
    return only.encode() in data or (name is not None and only.startswith(f"{name}-"))


def _plain_name(data: bytes) -> str | None:
    """The release's name without parsing the file; None unless exactly one line can be it."""
    lines = NAME_LINE.findall(data)
    return lines[0][1].decode() if len(lines) == 1 else None


def _unexpected(path: Path, error: Exception) -> str:
    reason = bounded(redacted(str(error)), REASON_CHARS // 2)
    return f"{path}: {type(error).__name__}: {reason}. `slipway validate` should have rejected this file: report it."
