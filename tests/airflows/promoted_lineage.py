"""What Airflow's OpenLineage provider emits of the task `promote` of a model, to its file transport. Runs in that Airflow."""

import sys
from types import SimpleNamespace

from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.utils.state import TaskInstanceState

from slipway.airflow.dags import release_dags
from slipway.tasks.contracts.stored.plan import Plan

promote = release_dags(sys.argv[1])["release__demo"].get_task("promote")
promote.planned = Plan.model_validate_json(sys.stdin.read()), sys.argv[2]
extracted = ExtractorManager().extract_metadata(
    dagrun=SimpleNamespace(run_id="one"),
    task=promote,
    task_instance_state=TaskInstanceState.SUCCESS,
    task_instance=SimpleNamespace(),
)
OpenLineageAdapter().complete_task(
    run_id="01a00000-0000-7000-8000-000000000000",
    job_name="release__demo.promote",
    end_time="2026-11-27T12:00:00Z",
    task=extracted,
    nominal_start_time=None,
    nominal_end_time=None,
    owners=None,
    tags=None,
    job_description=None,
)
