"""DAGs and runs as a scheduler stores them, for the API server to show."""

from contextlib import contextmanager
from datetime import UTC, datetime

from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models import DagRun
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import delete

from tests.support.paths import REPOSITORY


def store_dags():
    """Store the DAGs of the specs that SLIPWAY_SPECS names; what Airflow parsed."""
    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(str(REPOSITORY / "dags"))
    sync_bag_to_db(bag, "dags-folder", None)
    return bag


@contextmanager
def stored_run(bag, dag_id, run_id, states, *, note=None):
    """A running run whose tasks have these states, until the end; its task instances by task."""
    now = datetime.now(UTC)
    with create_session() as session:
        run = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(bag.dags[dag_id])).create_dagrun(
            run_id=run_id,
            logical_date=now,
            run_after=now,
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.RUNNING,
            note=note,
            session=session,
        )
        tasks = {task.task_id: task for task in run.get_task_instances(session=session)}
        for name, state in states.items():
            tasks[name].state, tasks[name].try_number = state, 1
        ids = {name: task.id for name, task in tasks.items()}
    yield ids
    with create_session() as session:
        session.execute(delete(DagRun).where(DagRun.id == run.id))
