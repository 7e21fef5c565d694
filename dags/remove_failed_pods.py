"""Removes every hour what failed steps left in the cluster.

Their pods are kept for their logs, for as long as `kubernetes.failed_pods_kept_h` in the site file says. A candidate, a
Service and a lease of a run that has ended, which it could not roll back, are removed by a run of the model's DAG
`rollback__<name>` with `to: live`.
"""

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronTriggerTimetable

from plugins.slipway_airflow.failed_pods import remove_failed_pods
from plugins.slipway_airflow.left_behind import dags_that_restore
from plugins.slipway_airflow.site import has_site_dags

with DAG(
    dag_id="remove_failed_pods",
    schedule=CronTriggerTimetable("17 * * * *", timezone="UTC", run_immediately=False),
    catchup=False,
    max_active_runs=1,
    tags={"slipway", "maintenance"},
    doc_md=__doc__,
    auto_register=has_site_dags(),
):
    again: dict[str, Any] = {
        "retries": 1,
        "retry_delay": timedelta(minutes=1),
        "execution_timeout": timedelta(minutes=10),
    }
    PythonOperator(task_id="remove_failed_pods", python_callable=remove_failed_pods, **again)
    find_left_behind = PythonOperator(task_id="find_left_behind", python_callable=dags_that_restore, **again)
    TriggerDagRunOperator.partial(
        task_id="restore", conf={"to": "live", "reason": "a run ended before it could roll back"}, **again
    ).expand(trigger_dag_id=find_left_behind.output)
