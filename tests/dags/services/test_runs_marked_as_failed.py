"""A run that a person marks as failed, by the function that Airflow's page and API call."""

import pytest
import yaml
from airflow.api.common.mark_tasks import set_dag_run_state_to_failed
from airflow.models import TaskInstance
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.dags.services.stored_runs import store_dags, stored_run
from tests.fakes.releases import SPEC

NAME, RUN = "marked", "manual__marked"
DAG = f"release__{NAME}"


@pytest.fixture
def bag(database, tmp_path, monkeypatch):
    (tmp_path / f"{NAME}.yaml").write_text(yaml.safe_dump(SPEC | {"name": NAME}))
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))
    return store_dags()


@pytest.mark.parametrize("state", ["running", "deferred", "awaiting_input"])
@pytest.mark.parametrize("task", ["benchmark", "approval"])
def test_the_task_that_it_was_at_has_failed_and_roll_back_is_still_to_come(bag, task, state):
    dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(bag.dags[DAG]))
    with stored_run(bag, DAG, RUN, {"roll-out": "success", task: state}):
        set_dag_run_state_to_failed(dag=dag, run_id=RUN, commit=True)
        with create_session() as session:
            of_run = select(TaskInstance.task_id, TaskInstance.state).where(TaskInstance.run_id == RUN)
            states = dict(session.execute(of_run).all())

    assert (states["roll-out"], states[task], states["promote"]) == ("success", "failed", "skipped")
    assert (states["roll-back"], states["released"]) == (None, None)
