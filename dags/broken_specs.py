"""Reports broken release specs: an import error of this file in Airflow's UI names each one and what is wrong in it.

Airflow reports import errors only for DAG files, and drops every DAG of a file that has one. So valid specs become DAGs
in release.py, rollback.py and drill.py, and broken ones are reported here, where there is no DAG to lose.
"""

from dags.drill import drill_dag
from dags.release import release_dag
from dags.rollback import rollback_dag
from plugins.slipway_airflow.site import specs_folder, specs_slice
from plugins.slipway_airflow.specs import BrokenSpecsError, make_dags
from tasks.contracts.spec.spec import ReleaseSpec

MAKERS = (release_dag, rollback_dag, drill_dag)


def check_dags(spec: ReleaseSpec) -> None:
    """Make every DAG of a spec, which is then read once."""
    for make in MAKERS:
        if (dag := make(spec)) is not None:
            dag.validate()  # type: ignore[no-untyped-call]  # Airflow's own


if broken := make_dags(specs_folder(), check_dags, part=specs_slice()).broken:
    raise BrokenSpecsError(broken)
