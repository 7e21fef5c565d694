"""Every task that starts a step's pod is tried again, and soon."""

from datetime import timedelta

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag

from slipway.airflow.step_operator import StepOperator
from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY

SOON = timedelta(minutes=1)
"""Airflow's own default is five minutes, which a roll back cannot wait."""


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """The operators of all DAGs, by DAG and task."""
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump({**SPEC, "name": "demo", "rollout": {"drill": {}}}))
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))
    found = DagBag(str(REPOSITORY / "dags"))
    assert found.import_errors == {}
    tasks = [task for dag in found.dags.values() for task in dag.tasks if isinstance(task, StepOperator)]
    return {f"{task.dag_id}.{task.task_id}": task for task in tasks}


def test_no_step_waits_long_for_its_next_try(steps):
    assert {"rollback__demo.revert", "drill__demo.drill", "release__demo.roll-back", "retention.retention"} <= set(
        steps
    )
    assert {name for name, task in steps.items() if task.retries < 1 or task.retry_delay > SOON} == set()
