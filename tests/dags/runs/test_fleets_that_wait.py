"""A run of a fleet ends, by Airflow's own scheduler and database, although a member is not released."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select, update

from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY

NAME = "waiting"
MEMBERS = [f"{NAME}-cpu-1", f"{NAME}-cpu-2"]


@pytest.fixture
def fleet(database, tmp_path, monkeypatch):
    """The fleet's DAG, which Airflow has read together with those of its members."""
    (tmp_path / "fleet.yaml").write_text(
        yaml.safe_dump({**SPEC, "name": NAME, "serving": {"shape": ["cpu-1", "cpu-2"]}})
    )
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))
    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(str(REPOSITORY / "dags"))
    with create_session() as session:
        sync_bag_to_db(bag, "dags-folder", None, session=session)
    return bag.dags[f"fleet__{NAME}"]


def test_members_can_be_started_once_the_fleet_is_unpaused(fleet):
    with create_session() as session:
        paused = {dag_id: session.get(DagModel, dag_id).is_paused for dag_id in (fleet.dag_id, *releases())}

    assert paused == {fleet.dag_id: True, **dict.fromkeys(releases(), False)}


@pytest.fixture
def paused(fleet):
    """A person has paused every member for the time of a test."""
    for is_paused in (True, False):
        with create_session() as session:
            session.execute(update(DagModel).where(DagModel.dag_id.in_(releases())).values(is_paused=is_paused))
        if is_paused:
            yield


def test_a_run_fails_at_once_where_every_member_is_paused(fleet, paused):
    run = fleet.test()

    states = {task.task_id: task.state for task in run.get_task_instances()}
    assert (run.state, states) == ("failed", {**dict.fromkeys(MEMBERS, "failed"), "released": "upstream_failed"})


@pytest.mark.parametrize(("days", "state"), [(6, "running"), (8, "failed")])
def test_a_run_that_waits_for_a_week_makes_room_for_the_next(fleet, days, state):
    run_id, began = f"since-{days}", datetime.now(UTC) - timedelta(days=days)
    with create_session() as session:
        run = SerializedDagModel.get(fleet.dag_id, session=session).dag.create_dagrun(
            run_id=run_id,
            run_after=began,
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state="running",
            start_date=began,
            session=session,
        )
        for task in run.get_task_instances(session=session):
            task.state = "deferred" if task.task_id == MEMBERS[0] else None

    with create_session() as session:
        run = session.scalar(select(DagRun).where(DagRun.run_id == run_id))
        SchedulerJobRunner(Job())._schedule_dag_run(run, session)

        assert run.state == state


def releases():
    return [f"release__{name}" for name in MEMBERS]
