"""Removes the pods of failed steps every hour.

`kubernetes.failed_pods_kept_h` in the site file sets how long they are kept for their logs.
"""

from datetime import timedelta

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, CronTriggerTimetable

from plugins.slipway_airflow.failed_pods import remove_failed_pods
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
    PythonOperator(
        task_id="remove_failed_pods",
        python_callable=remove_failed_pods,
        retries=1,
        retry_delay=timedelta(minutes=1),
        execution_timeout=timedelta(minutes=10),
    )
