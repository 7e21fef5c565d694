"""Which site this Airflow serves. The only place on Airflow's side that reads SLIPWAY_* variables."""

import functools
import os
from pathlib import Path

import yaml

from tasks.contracts.base import read_contract
from tasks.contracts.errors import InputError
from tasks.contracts.site import Site

SITE_VARIABLE = "SLIPWAY_SITE"
SPECS_VARIABLE = "SLIPWAY_SPECS"


@functools.cache
def current_site() -> Site:
    """The site that SLIPWAY_SITE names, read once per process.

    Raises:
        InputError: the variable is not set, or its file is absent, no YAML or no valid site.
    """
    path = os.environ.get(SITE_VARIABLE)
    if not path:
        raise InputError(
            f"{SITE_VARIABLE} is not set; it names the site file, such as sites/local.yaml. "
            "Set it for every Airflow process: scheduler, dag-processor, triggerer, api-server and workers."
        )
    return read_site(Path(path))


def read_site(path: Path) -> Site:
    """The site in `path`.

    Raises:
        InputError: it is absent, no YAML or no valid site.
    """
    return read_contract(Site, read_yaml(path), str(path))


def read_yaml(path: Path) -> object:
    """What a YAML file holds.

    Raises:
        InputError: it cannot be read or is no YAML.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a YAML file. Correct its path or its mode.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path} is no YAML: {' '.join(str(error).split())}. Correct the file.") from error


def specs_folder() -> Path:
    """Where the release specs lie: SLIPWAY_SPECS, or the repository's own specs."""
    return Path(os.environ.get(SPECS_VARIABLE) or Path(__file__).parents[2] / "specs")
