"""A spec whose schedule is an asset: Airflow's scheduler makes a run of it after an event of that asset."""

import pytest
import yaml
from airflow.assets.manager import AssetManager
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models import DagModel
from airflow.models.asset import AssetModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.sqlalchemy import prohibit_commit
from sqlalchemy import select, update

from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY


@pytest.mark.parametrize("schedule", ["slipway/base", "x-slipway://models/base"])
def test_a_promotion_starts_the_release_of_a_model_that_follows_it(database, tmp_path, monkeypatch, schedule):
    follower = f"follower-{len(schedule)}"
    for spec in ({**SPEC, "name": "base"}, {**SPEC, "name": follower, "schedule": schedule}):
        (tmp_path / f"{spec['name']}.yaml").write_text(yaml.safe_dump(spec))
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))
    DagBundlesManager().sync_bundles_to_db()
    with create_session() as session:
        sync_bag_to_db(DagBag(str(REPOSITORY / "dags")), "dags-folder", None, session=session)
        session.execute(update(DagModel).where(DagModel.dag_id == f"release__{follower}").values(is_paused=False))

    with create_session() as session:
        base = session.scalar(select(AssetModel).where(AssetModel.name == "slipway/base"))
        AssetManager().register_asset_change(asset=base.to_serialized(), session=session)
    with create_session() as session, prohibit_commit(session) as guard:
        SchedulerJobRunner(Job())._create_dagruns_for_dags(guard, session)
        guard.commit()

    with create_session() as session:
        (run,) = session.scalars(select(DagRun).where(DagRun.dag_id == f"release__{follower}")).all()
        assert run.run_type == "asset_triggered"
