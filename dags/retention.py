"""Deletes artifacts, releases, evidence and incomplete uploads that the site's `retention` does not keep, in one step.

Without `retention` in the site file the DAG has no schedule, and a run of it ends with what to add. docs/day-two.md
says what is kept. `dry_run` reports what a run would delete.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from plugins.slipway_airflow.site import current_site, has_site_dags
from plugins.slipway_airflow.step_operator import StepOperator

POLICY = current_site().retention

with DAG(
    dag_id="retention",
    schedule=POLICY.schedule if POLICY else None,
    catchup=False,
    max_active_runs=1,
    params={
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="report what would be deleted, and delete nothing"
        )
    },
    tags={"slipway", "maintenance"},
    doc_md=__doc__,
    auto_register=has_site_dags(),
):
    StepOperator(task_id="retention", step="retention", retries=1, retry_delay=timedelta(minutes=1))
