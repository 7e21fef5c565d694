"""The DAGs that belong to no model: what a site keeps, and what failed steps left in the cluster."""

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param
from airflow.timetables.trigger import CronTriggerTimetable

from slipway.airflow.dags.failed_pods import remove_failed_pods
from slipway.airflow.dags.left_behind import dags_that_restore
from slipway.airflow.site import current_site
from slipway.airflow.step_operator import StepOperator

TAGS = {"slipway", "maintenance"}
RETENTION = """Deletes artifacts, releases, evidence and incomplete uploads that the site's `retention` does not keep,
in one step.

Without `retention` in the site file the DAG has no schedule, and a run of it ends with what to add. docs/day-two.md
says what is kept. `dry_run` reports what a run would delete.
"""
FAILED_PODS = """Removes every hour what failed steps left in the cluster.

Their pods are kept for their logs, for as long as `kubernetes.failed_pods_kept_h` in the site file says. A candidate, a
Service and a lease of a run that has ended, which it could not roll back, are removed by a run of the model's DAG
`rollback__<name>` with `to: live`. A run that stands still, because its spec is removed or broken, is an error in the
log.
"""


def retention_dag() -> DAG:
    """Build the DAG that deletes what the site does not keep."""
    policy = current_site().retention
    with DAG(
        dag_id="retention",
        schedule=policy.schedule if policy else None,
        catchup=False,
        max_active_runs=1,
        params={
            "dry_run": Param(
                False, type="boolean", title="Dry run", description="report what would be deleted, and delete nothing"
            )
        },
        tags=TAGS,
        doc_md=RETENTION,
        auto_register=False,
    ) as dag:
        StepOperator(task_id="retention", step="retention", retries=1, retry_delay=timedelta(minutes=1))
    return dag


def failed_pods_dag(dags: Callable[[], Collection[str]]) -> DAG:
    """Build the DAG that removes what failed steps left.

    Args:
        dags: reads the specs, and gives the ids of their DAGs.
    """

    def models_to_restore(ti: Any) -> list[str]:
        return dags_that_restore(ti, dags())

    with DAG(
        dag_id="remove_failed_pods",
        schedule=CronTriggerTimetable("17 * * * *", timezone="UTC", run_immediately=False),
        catchup=False,
        max_active_runs=1,
        tags=TAGS,
        doc_md=FAILED_PODS,
        auto_register=False,
    ) as dag:
        again: dict[str, Any] = {
            "retries": 1,
            "retry_delay": timedelta(minutes=1),
            "execution_timeout": timedelta(minutes=10),
        }
        PythonOperator(task_id="remove_failed_pods", python_callable=remove_failed_pods, **again)
        find_left_behind = PythonOperator(task_id="find_left_behind", python_callable=models_to_restore, **again)
        TriggerDagRunOperator.partial(
            task_id="restore", conf={"to": "live", "reason": "a run ended before it could roll back"}, **again
        ).expand(trigger_dag_id=find_left_behind.output)
    return dag
