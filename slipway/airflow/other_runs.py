"""Ends the pods of runs that have ended, so that the next run may take over their leases.

Only Airflow knows whether a run is still active, so this is looked up here and passed to the step's pod.
docs/decisions/0011-a-run-that-ended-loses-its-model.md says why this is safe.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.pod_generator import make_safe_label_value
from airflow.providers.cncf.kubernetes.utils.pod_manager import PodPhase
from airflow.providers.common.compat.sdk import AirflowException
from kubernetes import client

from slipway.airflow import pods
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.lease import DAG_RUN, DagRun, lease_names

if TYPE_CHECKING:
    from kubernetes.client import models as k8s

ACTIVE = ["queued", "running"]
"""States of a DAG run that may still change its model."""
POLL_S = 1.0
PATIENCE_S = pods.TERMINATION_GRACE_S + 60
NOT_FOUND, FORBIDDEN = 404, 403

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OtherRuns:
    """Runs and their pods, from the view of one task. `core` is the operator's client of the pipeline's cluster."""

    core: client.CoreV1Api
    namespace: str
    serving_namespace: str
    ti: Any
    sleep: Callable[[float], None] = time.sleep

    @property
    def own(self) -> DagRun:
        """The run of this task."""
        return DagRun(self.ti.dag_id, self.ti.run_id)

    def ended_holders(self, spec: ReleaseSpec) -> dict[str, str]:
        """Leases of the model whose holder has ended and has no pods left: name and resource version.

        The order matters. The lease is read first: a holder that writes it afterwards is active, and the resource
        version no longer matches. The pods are ended last, because an ended run starts no new ones.
        """
        versions = {}
        for name in lease_names(spec):
            lease = self._lease(name)
            holder = DagRun.parse(((lease and lease.metadata.annotations) or {}).get(DAG_RUN, ""))
            if lease is None or holder is None or holder == self.own:
                continue
            if self.ti.get_dr_count(dag_id=holder.dag_id, run_ids=[holder.run_id], states=ACTIVE):
                log.info("Lease %s belongs to run %s, which has not ended.", name, holder)
                continue
            log.info("Lease %s belongs to run %s, which has ended; this run takes it over.", name, holder)
            self.end_pods(holder)
            versions[name] = str(lease.metadata.resource_version)
        return versions

    def end_pods(self, run: DagRun, *, besides: str | None = None) -> None:
        """Delete the running pods of a run, which might change the model, and wait until they are gone.

        Args:
            run: the run whose pods are deleted.
            besides: task whose pods are kept.

        Raises:
            AirflowException: a pod does not go away, as on a node that does not answer.
        """
        waited = 0.0
        while alive := self._alive(run, besides):
            if waited >= PATIENCE_S:
                names = ", ".join(f"{pod.metadata.name} on node {pod.spec.node_name}" for pod in alive)
                raise AirflowException(
                    f"run {run} has ended, but after {waited:.0f} s it still has pods in {self.namespace}: {names}. "
                    "They could still change the model, so this task does not begin. If a node is lost, remove the "
                    "node from the cluster; the next try of this task then continues."
                )
            self._delete(pod for pod in alive if pod.metadata.deletion_timestamp is None)
            self.sleep(POLL_S)
            waited += POLL_S

    def _alive(self, run: DagRun, besides: str | None) -> "list[k8s.V1Pod]":
        labels = {"dag_id": make_safe_label_value(run.dag_id), "run_id": make_safe_label_value(run.run_id)}
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        listed = self.core.list_namespaced_pod(self.namespace, label_selector=selector).items
        return [
            pod
            for pod in listed
            if pod.status.phase not in PodPhase.terminal_states and pod.metadata.labels.get("task_id") != besides
        ]

    def _delete(self, alive: "Iterable[k8s.V1Pod]") -> None:
        for pod in alive:
            log.info("Pod %s belongs to a run or a task that has ended; deleting it.", pod.metadata.name)
            try:
                self.core.delete_namespaced_pod(pod.metadata.name, self.namespace)
            except client.ApiException as error:
                if error.status != NOT_FOUND:
                    raise

    def _lease(self, name: str) -> "k8s.V1Lease | None":
        try:
            return client.CoordinationV1Api(self.core.api_client).read_namespaced_lease(name, self.serving_namespace)
        except client.ApiException as error:
            if error.status == NOT_FOUND:
                return None
            if error.status != FORBIDDEN:
                raise
            log.warning(
                "Airflow is not allowed to read Lease %s/%s, so a run that ended midway keeps its model until its "
                "lease expires. Apply k8s_manifests/base, which allows it.",
                self.serving_namespace,
                name,
            )
            return None
