"""The adapter to Kubernetes: applies, reads, awaits and deletes objects, and holds leases. Vendor errors end here."""

import contextlib
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self

from slipway.tasks.adapters.clock import Clock, SystemClock
from slipway.tasks.adapters.hub.header_token import header_token
from slipway.tasks.adapters.importing import importing
from slipway.tasks.adapters.kube import event_object, lease_object, pod_state, service_object
from slipway.tasks.adapters.kube.availability import Wait
from slipway.tasks.adapters.kube.event_object import MoveEvent
from slipway.tasks.adapters.kube.kube_errors import MissingError, StaleError, UnknownKindError, translated
from slipway.tasks.adapters.kube.kubeconfig_errors import BROKEN, of_kubeconfig
from slipway.tasks.adapters.kube.lease_object import LeaseHolder
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.kube.starting_server import wait_while_starting
from slipway.tasks.adapters.kube.workload_state import LEADER_WORKER_SET
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.site.site import Budgets, Site, StartBudget
from slipway.tasks.contracts.stored.lease import DAG_RUN

Document = dict[str, Any]
"""A Kubernetes object as JSON."""

FIELD_MANAGER = "slipway"
API_VERSIONS = {
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "EC2NodeClass": "karpenter.k8s.aws/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "GRPCRoute": "gateway.networking.k8s.io/v1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "Ingress": "networking.k8s.io/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "NodeClaim": "karpenter.sh/v1",
    "NodePool": "karpenter.sh/v1",
    "PodDisruptionBudget": "policy/v1",
    "ReplicaSet": "apps/v1",
    "ScaledObject": "keda.sh/v1alpha1",
}
"""API versions of the kinds that are not in the core group."""

KARPENTER = frozenset({"EC2NodeClass", "NodeClaim", "NodePool"})
OPTIONAL_KINDS = KARPENTER | {LEADER_WORKER_SET, "DaemonSet", "GRPCRoute", "HTTPRoute", "ScaledObject"}
"""Kinds that a cluster may lack; one that lacks a kind has no such object."""

CPU_BUDGET = Budgets().cpu
TIMEOUT_S = 30
EVENT_TIMEOUT_S = 5
LEASE_ATTEMPTS = 5
LOG_LINES = 100

log = logging.getLogger(__name__)


class Cluster:
    """One cluster, seen from the serving namespace."""

    def __init__(self, api: Any, namespace: str, clock: Clock, *, api_key: str = "") -> None:
        """`api` is a kubernetes.client.ApiClient; `api_key` is for the models that its Services lead to."""
        from kubernetes.dynamic import DynamicClient

        self.namespace, self._clock, self._api_key = namespace, clock, api_key
        self._known: dict[str, bool] = {}
        wait_while_starting(api, clock)
        with translated("the cluster"):
            self._client = DynamicClient(api)

    @classmethod
    def connect(cls, site: Site, *, kubeconfig: Path | None = None, api_key: str = "") -> Self:
        """Connect by a kubeconfig (`kubeconfig`, or what KUBECONFIG names), or else by the pod's service account.

        Raises:
            InputError: there is neither, or the kubeconfig is damaged.
        """
        with importing():
            from kubernetes import client, config

        settings = client.Configuration()
        default_files = [Path(name).expanduser() for name in config.KUBE_CONFIG_DEFAULT_LOCATION.split(":") if name]
        file, context = (str(kubeconfig) if kubeconfig else None), site.kubernetes.context
        has_file = file is not None or any(path.exists() for path in default_files)
        where = (file or config.KUBE_CONFIG_DEFAULT_LOCATION) if has_file else "the pod's service account"
        try:
            if has_file:
                config.load_kube_config(config_file=file, context=context, client_configuration=settings)
            else:
                config.load_incluster_config(client_configuration=settings)
        except config.ConfigException as error:
            raise InputError(
                f"cannot connect to the cluster: {error}",
                remedy=f"Set KUBECONFIG, check kubernetes.context of site {site.name}, or run in a pod whose service "
                "account token is mounted.",
            ) from error
        except BROKEN as error:
            raise of_kubeconfig(where, error) from None  # the chain may quote a token
        source = f"the token in {where}"
        settings.api_key = {name: header_token(str(token), source) for name, token in settings.api_key.items()}
        try:
            return cls(client.ApiClient(settings), site.kubernetes.serving_namespace, SystemClock(), api_key=api_key)
        except BROKEN as error:
            raise of_kubeconfig(where, error) from None

    def apply(self, objects: Iterable[Document]) -> None:
        """Apply objects on the server, in order; the fields that they set become ours, whoever managed them before."""
        for item in objects:
            namespace = item["metadata"].get("namespace")
            place = f"{namespace}/" if namespace else ""
            with translated(f"{item['kind']} {place}{item['metadata']['name']}"):
                self._resource(item["kind"], item["apiVersion"]).server_side_apply(
                    body=item,
                    name=item["metadata"]["name"],
                    namespace=namespace,
                    field_manager=FIELD_MANAGER,
                    force_conflicts=True,
                    _request_timeout=TIMEOUT_S,
                )

    def create(self, item: Document) -> None:
        """Create an object of the serving namespace.

        Raises:
            StaleError: another client has created it.
        """
        with translated(f"{item['kind']} {self.namespace}/{item['metadata']['name']}"):
            self._resource(item["kind"]).create(body=item, namespace=self.namespace, _request_timeout=TIMEOUT_S)

    def get(self, kind: str, name: str) -> Document | None:
        """An object of the serving namespace; None when it is absent."""
        if not self.has_kind(kind):
            return None
        try:
            with translated(f"{kind} {name}"):
                response = self._resource(kind).get(name=name, namespace=self.namespace, _request_timeout=TIMEOUT_S)
        except MissingError:
            return None
        document: Document = response.to_dict()
        return document

    def find(self, kind: str, labels: dict[str, str], *, namespace: str | None = None) -> list[Document]:
        """Objects that carry every label, of the cluster or of a namespace (default: the serving namespace)."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        if not self.has_kind(kind):
            return []
        with translated(f"{kind} list"):
            response = self._resource(kind).get(
                namespace=namespace or self.namespace, label_selector=selector, _request_timeout=TIMEOUT_S
            )
        return [{**item, "kind": kind} for item in response.to_dict()["items"]]

    def delete(self, kind: str, name: str, *, version: str | None = None, namespace: str | None = None) -> bool:
        """Delete an object and what it owns, in the background; return whether it existed.

        Args:
            kind: kind of the object.
            name: name of the object.
            version: resource version that it must have.
            namespace: its namespace (default: the serving namespace).

        Raises:
            StaleError: it is not at resource version `version`.
        """
        if not self.has_kind(kind):
            return False
        body: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if version:
            body["preconditions"] = {"resourceVersion": version}
        try:
            place = namespace or self.namespace
            with translated(f"{kind} {place}/{name}"):
                self._resource(kind).delete(name=name, namespace=place, body=body, _request_timeout=TIMEOUT_S)
        except MissingError:
            return False
        return True

    def annotate(self, kind: str, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of an object, and change nothing else of it.

        Raises:
            MissingError: there is no such object.
        """
        self._merge(kind, name, {"metadata": {"annotations": dict(annotations)}})

    def scale(self, kind: str, name: str, replicas: int, annotations: Mapping[str, str | None] | None = None) -> None:
        """Set how many replicas a workload has, and nothing else of it but the annotations given, in one write.

        An annotation of None is removed.

        Raises:
            MissingError: there is no such workload.
        """
        body: Document = {"spec": {"replicas": replicas}}
        if annotations:
            body["metadata"] = {"annotations": dict(annotations)}
        self._merge(kind, name, body)

    def _merge(self, kind: str, name: str, body: Document) -> None:
        with translated(f"{kind} {self.namespace}/{name}"):
            self._resource(kind).patch(
                body=body,
                name=name,
                namespace=self.namespace,
                content_type="application/merge-patch+json",
                field_manager=FIELD_MANAGER,
                _request_timeout=TIMEOUT_S,
            )

    def service_address(self, name: str) -> ServiceAddress | None:
        """The address of a Service of the serving namespace; None when there is no such Service.

        Raises:
            UnavailableError: it has no address yet.
        """
        service = self.get("Service", name)
        return service_object.address_of(service, self._api_key) if service else None

    def live_address(self, name: str) -> ServiceAddress | None:
        """The model's live Service; None before its first promotion."""
        return self.service_address(name)

    def candidate_address(self, name: str) -> ServiceAddress:
        """The Service of the model's candidate.

        Raises:
            InputError: there is none.
        """
        address = self.service_address(f"{name}-candidate")
        if address is None:
            raise InputError(
                f"Service {self.namespace}/{name}-candidate does not exist, so there is no candidate",
                remedy="Clear the task roll-out of this run.",
            )
        return address

    def ready_pods(self, labels: dict[str, str]) -> list[str]:
        """Names of the pods with these labels that are ready and not being deleted."""
        return [pod["metadata"]["name"] for pod in self.find("Pod", labels) if pod_state.is_ready(pod)]

    def pod_addresses(self, labels: dict[str, str], ports: dict[str, int]) -> dict[str, ServiceAddress]:
        """Return the addresses, by name, of the pods with these labels that are ready and not being deleted."""
        ready = [pod for pod in self.find("Pod", labels) if pod_state.is_ready(pod)]
        return {pod["metadata"]["name"]: ServiceAddress(pod["status"]["podIP"], ports, self._api_key) for pod in ready}

    def endpoints(self, service: str) -> set[str]:
        """Names of the pods that a Service sends connections to now."""
        return service_object.ready_pods(self.find("EndpointSlice", {"kubernetes.io/service-name": service}))

    def wait_available(self, kind: str, name: str, ready_timeout_s: float, budget: StartBudget = CPU_BUDGET) -> None:
        """Wait until every replica of the workload's newest generation is available and no older one is left.

        Args:
            kind: of the workload.
            name: of the workload.
            ready_timeout_s: time for its programs to become ready, once its pods have nodes and images.
            budget: time for nodes, and for images.

        Raises:
            InputError: a pod cannot start and never will; its last log lines are in the message.
            UnavailableError: a phase of the start used up its time.
        """
        Wait(self, self._clock, kind, name, ready_timeout_s, budget).run()

    def lease_holder(self, name: str) -> LeaseHolder | None:
        """Who took the lease last and did not release it, even if it has expired; None when nobody did."""
        lease = self.get("Lease", name)
        return lease_object.holder_of(lease) if lease else None

    def acquire_lease(
        self, name: str, holder: str, duration_s: int, *, dag_run: str = "", ended_at: str | None = None
    ) -> LeaseHolder | None:
        """Acquire, take over or renew a lease. Returns None when `holder` has it now, otherwise who has it.

        Args:
            name: name of the lease.
            holder: the run that acquires it.
            duration_s: time after which it expires unless it is renewed.
            dag_run: Airflow run of `holder`.
            ended_at: resource version at which the lease's holder is known to have ended. A lease that was written
                after that is in use, and is not taken over before it expires.

        Raises:
            UnavailableError: other clients changed it during every attempt.
        """
        for _ in range(LEASE_ATTEMPTS):
            now, lease = self._now(), self.get("Lease", name)
            current = lease_object.holder_of(lease) if lease else None
            mine = current is not None and current.is_same(holder, dag_run)
            if current and not mine and current.until > now and current.version != ended_at:
                return current
            since = current.since if current and mine else now
            try:
                spec = lease_object.spec_of(holder, duration_s, since, now, lease)
                self._put_lease(name, lease, spec, dag_run or (current.dag_run if current and mine else ""))
            except (StaleError, MissingError):
                continue
            return None
        raise UnavailableError(
            f"Lease {self.namespace}/{name} was changed by others {LEASE_ATTEMPTS} times", remedy="Run the step again."
        )

    def release_lease(self, name: str, holder: str, *, dag_run: str = "") -> None:
        """Release a lease; does nothing when another run has it by now."""
        lease = self.get("Lease", name)
        current = lease_object.holder_of(lease) if lease else None
        if lease and current and current.is_same(holder, dag_run):
            with contextlib.suppress(StaleError, MissingError):
                self.delete("Lease", name, version=lease["metadata"]["resourceVersion"])

    def _now(self) -> datetime:
        """The API server's time of day: one machine writes a lease and another one judges it, each with its own clock.

        It is in the header Date of every answer, in whole seconds (RFC 9110, 6.6.1).
        """
        with translated("the cluster's time"):
            answer = self._client.request("get", "/version", serialize=False, _request_timeout=TIMEOUT_S)
        return parsedate_to_datetime(answer.headers["Date"])

    def nodes(self, labels: dict[str, str]) -> list[Document]:
        """Nodes that carry every label and take pods."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        with translated("nodes"):
            response = self._resource("Node").get(label_selector=selector, _request_timeout=TIMEOUT_S)
        return [node for node in response.to_dict()["items"] if not node["spec"].get("unschedulable")]

    def log_tail(self, pod: str, container: str, lines: int = LOG_LINES) -> str:
        """The last lines that a container printed; empty when there are none."""
        from kubernetes import client

        try:
            with translated(f"log of {pod}"):
                answer = client.CoreV1Api(self._client.client).read_namespaced_pod_log(
                    pod,
                    self.namespace,
                    container=container,
                    tail_lines=lines,
                    _request_timeout=TIMEOUT_S,
                    _preload_content=False,  # the client's own decoding gives "b'...'" (kubernetes-client/python#2596)
                )
        except PipelineError:
            return ""
        return str(answer.data.decode(errors="replace")).strip()

    def events(self, name: str) -> list[Document]:
        """Events of the object with this name, oldest first; none when they cannot be read."""
        try:
            with translated(f"events of {name}"):
                response = self._resource("Event", "v1").get(
                    namespace=self.namespace,
                    field_selector=f"involvedObject.name={name}",
                    _request_timeout=TIMEOUT_S,
                )
        except PipelineError:  # they would only have explained another error
            return []
        events: list[Document] = response.to_dict()["items"]
        return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))

    def tell(self, objects: Iterable[tuple[str, str]], event: MoveEvent) -> None:
        """Record an Event about the first of these objects that exists; nothing fails if that fails.

        Args:
            objects: kind and name of each.
            event: what happened.
        """
        places = list(objects)
        try:
            items = (self.get(kind, name) for kind, name in places)
            item = next((item for item in items if item is not None), None)
            if item is None:
                return
            body = event_object.event_about(item, event, self._clock.now())
            with translated(f"events of {item['metadata']['name']}"):
                self._resource("Event", "v1").create(
                    body=body, namespace=self.namespace, _request_timeout=EVENT_TIMEOUT_S
                )
        except StaleError:  # this run has told it before
            return
        except PipelineError as error:
            log.warning("no event %s about %s: %s", event.reason, places[0][1], error)

    def _put_lease(self, name: str, before: Document | None, spec: Document, dag_run: str) -> None:
        metadata = {"name": name, "namespace": self.namespace, "annotations": {DAG_RUN: dag_run}}
        document = {"apiVersion": API_VERSIONS["Lease"], "kind": "Lease", "metadata": metadata, "spec": spec}
        if before is None:
            self.create(document)
            return
        metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
        with translated(f"Lease {name}"):
            self._resource("Lease").replace(body=document, namespace=self.namespace, _request_timeout=TIMEOUT_S)

    def has_kind(self, kind: str) -> bool:
        """Whether the cluster has the kind, looked up once: for an unknown kind the client reads the whole API."""
        if kind in OPTIONAL_KINDS and kind not in self._known:
            try:
                with translated(kind):
                    self._resource(kind)
            except UnknownKindError:
                self._known[kind] = False
            else:
                self._known[kind] = True
        return self._known.get(kind, True)

    def _resource(self, kind: str, api_version: str | None = None) -> Any:
        return self._client.resources.get(api_version=api_version or API_VERSIONS.get(kind, "v1"), kind=kind)
