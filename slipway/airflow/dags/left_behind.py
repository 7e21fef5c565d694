"""Finds the models that a run left in the middle: it has ended, and the cluster still says that it holds them.

A roll-back releases the model's lease. One whose tries ended before the cluster could be reached again does not, and
its candidate stays, with its GPUs, until somebody releases that model again.
"""

import logging
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from kubernetes import client
from kubernetes.client import models as k8s

from slipway.airflow.other_runs import ACTIVE
from slipway.airflow.site import current_site
from slipway.tasks.contracts.stored.lease import DAG_RUN, DagRun, model_of

RELEASES, ROLLBACKS = "release__", "rollback__"
"""Begin the ids of the DAGs of a model."""
SETTLED = timedelta(minutes=15)
"""A run that a person ended rolls back for some time after it counts as ended, and renews its lease meanwhile."""

log = logging.getLogger(__name__)


def dags_that_restore(ti: Any, dags: Collection[str]) -> list[str]:
    """Ids of the DAGs that put the models in order of which an ended run still holds the lease.

    Args:
        ti: the task instance, by which Airflow is asked about runs.
        dags: ids of the DAGs that the specs have.
    """
    site = current_site()
    hook = KubernetesHook(conn_id=site.airflow.kubernetes_conn_id, cluster_context=site.kubernetes.context)
    leases = client.CoordinationV1Api(hook.core_v1_client.api_client)
    held, _, headers = leases.list_namespaced_lease_with_http_info(site.kubernetes.serving_namespace)
    now = parsedate_to_datetime(headers["Date"])  # the API server's clock, by which leases are renewed
    return [f"{ROLLBACKS}{model}" for model in models_left(held.items, ti, now, dags)]


def models_left(leases: Iterable[k8s.V1Lease], ti: Any, now: datetime, dags: Collection[str]) -> list[str]:
    """Models whose lease belongs to a run that has ended. One that is being released puts itself in order.

    Airflow does not go on with a run whose DAG is gone, nor ends it; only its spec helps (airflow/models/dagrun.py,
    get_running_dag_runs_to_examine).
    """
    left = []
    for lease in leases:
        model, run = model_of(lease.metadata.name), DagRun.parse((lease.metadata.annotations or {}).get(DAG_RUN, ""))
        renewed_at = lease.spec.renew_time if lease.spec else None
        if model is None or run is None or (renewed_at and now - renewed_at < SETTLED):
            continue
        runs = ((run.dag_id, run.run_id), *((f"{kind}{model}", None) for kind in (RELEASES, ROLLBACKS)))
        active = {dag_id for dag_id, run_id in runs if _is_active(ti, dag_id, run_id)}
        for dag_id in sorted(active - set(dags)):
            log.error(
                "a run of %s stands still, because its spec is removed or broken: put it back or repair it", dag_id
            )
        if active:
            continue
        log.warning("run %s has ended and still holds model %s: what it left behind is removed", run, model)
        left.append(model)
    return left


def _is_active(ti: Any, dag_id: str, run_id: str | None = None) -> bool:
    return bool(ti.get_dr_count(dag_id=dag_id, run_ids=[run_id] if run_id else None, states=ACTIVE))
