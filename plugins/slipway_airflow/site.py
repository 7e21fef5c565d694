"""The site that this Airflow serves. Only this module reads SLIPWAY_* variables on Airflow's side."""

import functools
import os
from pathlib import Path

from tasks.contracts.base import read_contract
from tasks.contracts.errors import InputError
from tasks.contracts.site import Site
from tasks.document_files import read_document

SITE_VARIABLE = "SLIPWAY_SITE"
SPECS_VARIABLE = "SLIPWAY_SPECS"


@functools.cache
def current_site() -> Site:
    """The site that SLIPWAY_SITE names, read once per process.

    Raises:
        InputError: the variable is not set, or its file is missing or not a valid site.
    """
    path = os.environ.get(SITE_VARIABLE)
    if not path:
        raise InputError(
            f"{SITE_VARIABLE} is not set",
            expected="the path of the site file, such as sites/local.yaml",
            remedy="Set it for every Airflow process: scheduler, dag-processor, triggerer, api-server and workers.",
        )
    return read_site(Path(path))


def read_site(path: Path) -> Site:
    """Read the site file at `path`.

    Raises:
        InputError: it is missing or not a valid site.
    """
    return read_contract(Site, read_document(path), str(path))


def specs_folder() -> Path:
    """The folder of the release specs: SLIPWAY_SPECS, or the repository's own specs."""
    return Path(os.environ.get(SPECS_VARIABLE) or Path(__file__).parents[2] / "specs")
