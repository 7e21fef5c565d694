"""The release specs of a folder, the good apart from the broken, so that one mistake stops one model only."""

from dataclasses import dataclass, field
from pathlib import Path

from plugins.slipway_airflow.site import read_yaml
from tasks.contracts.base import read_contract
from tasks.contracts.errors import InputError
from tasks.contracts.spec import ReleaseSpec


@dataclass(frozen=True)
class Specs:
    """What a folder's *.yaml files hold."""

    good: dict[Path, ReleaseSpec] = field(default_factory=dict)
    broken: dict[Path, str] = field(default_factory=dict)


def read_specs(folder: Path) -> Specs:
    """Read every *.yaml of `folder`, in the order of names.

    Of two files with the same release name the first is good and the second broken: a name is one DAG and one Service.
    """
    specs = Specs()
    owners: dict[str, Path] = {}
    for path in sorted(folder.glob("*.yaml")):
        try:
            spec = read_contract(ReleaseSpec, read_yaml(path), str(path))
        except InputError as error:
            specs.broken[path] = str(error)
            continue
        if (owner := owners.setdefault(spec.name, path)) != path:
            specs.broken[path] = (
                f"{path}: name {spec.name} is taken by {owner}; expected one spec per name. Rename one."
            )
            continue
        specs.good[path] = spec
    return specs
