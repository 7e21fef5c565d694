"""The site that this Airflow serves. Only this module reads SLIPWAY_* variables on Airflow's side."""

import functools
import os
import re
from pathlib import Path

from slipway.airflow.specs import Slice
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.document_files import read_contract_file

SITE_VARIABLE = "SLIPWAY_SITE"
SPECS_VARIABLE = "SLIPWAY_SPECS"
SLICE_VARIABLE = "SLIPWAY_SLICE"
MAX_SLICES = 1000


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
    return read_contract_file(Site, path)


def specs_folder() -> Path:
    """The folder of the release specs: SLIPWAY_SPECS, or the repository's own specs."""
    return Path(os.environ.get(SPECS_VARIABLE) or Path(__file__).parents[2] / "specs")


def specs_slice() -> Slice | None:
    """The slice of the specs that SLIPWAY_SLICE gives to this dag-processor; None: all of them, as in a task's process.

    Raises:
        InputError: the variable is not of the form `2/8`.
    """
    from airflow.sdk import get_parsing_context  # noqa: PLC0415 - sites are also read where there is no Airflow

    text = os.environ.get(SLICE_VARIABLE)
    if not text or get_parsing_context().dag_id:
        return None
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    number, of = (int(part) for part in found.groups()) if found else (0, 0)
    if not 1 <= number <= of <= MAX_SLICES:
        raise InputError(
            f"{SLICE_VARIABLE} is {text!r}",
            expected=f"the number of a slice and how many there are, such as 2/8, of at most {MAX_SLICES}",
            remedy="Set it for each dag-processor alone, or remove it: docs/scale.md.",
        )
    return Slice(number, of)


def has_site_dags() -> bool:
    """Whether this process makes the DAGs that belong to no model: of several slices only the first does."""
    part = specs_slice()
    return part is None or part.number == 1
