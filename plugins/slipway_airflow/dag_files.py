"""The entry of a DAG file that makes a DAG of each spec."""

from typing import TYPE_CHECKING, Any

from plugins.slipway_airflow.site import current_site, specs_folder, specs_slice
from plugins.slipway_airflow.specs import make_dags, name_in_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import DAG

    from tasks.contracts.spec.spec import ReleaseSpec

MODULES = "dags."


def publish_dags(
    module: dict[str, Any], make: "Callable[[ReleaseSpec], DAG | None]", *, prefix: str, holding: str | None = None
) -> None:
    """Make the DAGs of a DAG file, and add them to the file's names, among which Airflow looks for them.

    Airflow loads a DAG file under a name of its own. A file that is imported as a module of `dags` makes no DAGs:
    broken_specs.py imports three of them for their functions, and would make the DAGs of every spec twice.

    Args:
        module: the file's globals().
        make: makes the DAG of a spec, or returns None for a spec that has no such DAG.
        prefix: what a DAG's id has before the name of the release.
        holding: text that every spec with such a DAG holds; other files are not parsed.
    """
    current_site()  # a missing site file is an error of this file, not of each spec
    if module["__name__"].startswith(MODULES):
        return
    dags = make_dags(specs_folder(), make, only=name_in_task(prefix), part=specs_slice(), holding=holding)
    module.update(dags.made)
