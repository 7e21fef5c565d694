"""What a DAG file calls: the DAGs of a folder of release specs, and a report of the specs that have none."""

import functools
from collections.abc import Callable
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from slipway.airflow.dags.adapters_dag import adapters_dag
from slipway.airflow.dags.drill_dag import drill_dag
from slipway.airflow.dags.fleet_dag import fleet_dag
from slipway.airflow.dags.left_behind import RELEASES, ROLLBACKS
from slipway.airflow.dags.release_dag import release_dag
from slipway.airflow.dags.rollback_dag import rollback_dag
from slipway.airflow.dags.site_dags import failed_pods_dag, retention_dag
from slipway.airflow.notify.callbacks import warn_of_problems
from slipway.airflow.site import current_site, has_site_dags, specs_folder, specs_slice
from slipway.airflow.specs import BrokenSpecsError, Slice, make_dags
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.fleet import FLEETS, SpecFile
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.lease import ADAPTERS, DRILLS

MAKERS: dict[str, Callable[[ReleaseSpec, SpecFile], DAG | None]] = {
    RELEASES: release_dag,
    ROLLBACKS: lambda spec, _: rollback_dag(spec),
    DRILLS: lambda spec, _: drill_dag(spec),
    ADAPTERS: lambda spec, _: adapters_dag(spec),
}
"""What makes the DAGs of a model, by what their ids begin with."""


def release_dags(specs: str | Path | None = None) -> dict[str, DAG]:
    """The DAGs of every valid spec, and those of the site, by their ids.

    A DAG file adds them to its names, among which Airflow looks for DAGs: `globals().update(release_dags("specs/"))`.
    A broken spec has none and affects no other one; `report_broken_specs` says what is wrong with it. A process that
    runs a task makes only that task's DAG
    (https://airflow.apache.org/docs/apache-airflow/stable/howto/dynamic-dag-generation.html).

    Args:
        specs: the folder of the specs; None: what SLIPWAY_SPECS names.

    Raises:
        InputError: there is no valid site file, or no such folder.
    """
    current_site()  # a missing site file is an error of the DAG file, not of each spec
    folder = _existing(specs)
    warn_of_problems()
    of_task = get_parsing_context().dag_id or ""
    for prefix, make in MAKERS.items():
        if of_task.startswith(prefix):
            return make_dags(folder, [make], only=of_task.removeprefix(prefix)).made
    if of_task.startswith(FLEETS):
        return make_dags(folder, [], [fleet_dag], only=of_task.removeprefix(FLEETS)).made
    dags_of_specs = functools.partial(_dags_of, folder)
    of_site = [retention_dag(), failed_pods_dag(dags_of_specs)] if has_site_dags() else []
    found = {} if of_task else _dags_of(folder, specs_slice())
    return found | {dag.dag_id: dag for dag in of_site}


def report_broken_specs(specs: str | Path | None = None) -> None:
    """Raise an error for a DAG file of its own, which Airflow's UI shows as the file's import error.

    Airflow reports import errors only for DAG files, and drops every DAG of a file that has one. So valid specs become
    DAGs in one file, and broken ones are reported in another one, where there is no DAG to lose.

    Args:
        specs: as of `release_dags`.

    Raises:
        InputError: there is no valid site file, or no such folder.
        BrokenSpecsError: specs are broken; the text names each one and what is wrong in it.
    """
    current_site()
    if broken := make_dags(_existing(specs), [*MAKERS.values()], [fleet_dag], part=specs_slice()).broken:
        raise BrokenSpecsError(broken)


def _dags_of(folder: Path, part: Slice | None = None) -> dict[str, DAG]:
    return make_dags(folder, [*MAKERS.values()], [fleet_dag], part=part).made


def _existing(specs: str | Path | None) -> Path:
    """The folder, which Airflow would otherwise read as one without models.

    Raises:
        InputError: it does not exist.
    """
    folder = Path(specs or specs_folder())
    if not folder.is_dir():
        raise InputError(
            "there is no folder of release specs",
            found=f"{folder}, seen from {Path.cwd()}",
            expected="a folder with a *.yaml file for each model",
            remedy="Give both functions of the DAG files its absolute path, or set SLIPWAY_SPECS for every process.",
        )
    return folder
