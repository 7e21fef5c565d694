"""Removes the pods of failed steps once their logs have been kept for the time that the site sets.

Kubernetes itself removes a finished pod only when a cluster holds 12,500 of them (kube-controller-manager,
--terminated-pod-gc-threshold), and StepOperator keeps a failed one for its log.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from kubernetes.client import ApiException
from kubernetes.client import models as k8s

from slipway.airflow.site import current_site

SELECTOR = "app.kubernetes.io/managed-by=slipway,slipway.dev/step"
FINISHED = frozenset({"Failed", "Succeeded"})
SHORTEST_STAY = timedelta(minutes=15)
"""A task reads how its pod ended within this time, even if Airflow restarts."""

NOT_FOUND = 404
log = logging.getLogger(__name__)


def finished_at(pod: k8s.V1Pod) -> datetime:
    """The time at which the pod's last container ended, or its state last changed if it never ran one."""
    statuses = pod.status.container_statuses or []
    ends = [status.state.terminated.finished_at for status in statuses if status.state and status.state.terminated]
    changes = [condition.last_transition_time for condition in pod.status.conditions or []]
    times = [time for time in ends or changes if time]
    created_at: datetime = pod.metadata.creation_timestamp
    return max(times, default=created_at)


def expired(pods: Iterable[k8s.V1Pod], now: datetime, kept: timedelta) -> list[k8s.V1Pod]:
    """The finished pods that have stayed longer than `kept`."""
    stay = max(kept, SHORTEST_STAY)
    return [pod for pod in pods if pod.status.phase in FINISHED and now - finished_at(pod) > stay]


def remove_failed_pods() -> int:
    """Delete the site's expired step pods and return their number."""
    site = current_site()
    hook = KubernetesHook(conn_id=site.airflow.kubernetes_conn_id, cluster_context=site.kubernetes.context)
    client, namespace = hook.core_v1_client, site.kubernetes.pipeline_namespace
    listed, _, headers = client.list_namespaced_pod_with_http_info(namespace, label_selector=SELECTOR)
    pods, now = listed.items, parsedate_to_datetime(headers["Date"])  # the cluster wrote the times of its pods
    removed = expired(pods, now, timedelta(hours=site.kubernetes.failed_pods_kept_h))
    for pod in removed:
        _delete(client, pod)
    log.info("%d of %d step pods removed", len(removed), len(pods))
    return len(removed)


def _delete(client: Any, pod: k8s.V1Pod) -> None:
    log.info("removing pod %s, which ended at %s", pod.metadata.name, finished_at(pod))
    try:
        # by uid, because a new pod may have the name by now
        uid = k8s.V1Preconditions(uid=pod.metadata.uid)
        client.delete_namespaced_pod(
            pod.metadata.name, pod.metadata.namespace, body=k8s.V1DeleteOptions(preconditions=uid)
        )
    except ApiException as error:
        if error.status != NOT_FOUND:
            raise
