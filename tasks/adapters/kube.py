"""The door to Kubernetes: apply, look, wait, delete and lease. Vendor errors end here."""

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from tasks.adapters import lease_object, pod_state, workload_state
from tasks.adapters.clock import Clock, SystemClock
from tasks.adapters.lease_object import LeaseHolder
from tasks.adapters.workload_state import LEADER_WORKER_SET, SET_NAME
from tasks.contracts.errors import ConflictError, InputError, PipelineError, UnavailableError
from tasks.contracts.site import Site

log = logging.getLogger(__name__)

Document = dict[str, Any]
"""A Kubernetes object as JSON."""

FIELD_MANAGER = "slipway"
API_VERSIONS = {
    "Deployment": "apps/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "ReplicaSet": "apps/v1",
}
"""Of kinds that are not in the core group."""

OPTIONAL_KINDS = frozenset({LEADER_WORKER_SET})
"""Kinds that a cluster need not know; one that does not has no such object."""

REVISION = "deployment.kubernetes.io/revision"
POD_TEMPLATE = "pod-template-hash"
"""How the Deployment controller tells the pods of one generation from those of another."""

POLL_S = 0.5
REPORT_EVERY_S = 10.0
UNSCHEDULABLE_AFTER_S = 600.0  # an autoscaler takes up to ten minutes to add a GPU node
TIMEOUT_S = 30
LEASE_ATTEMPTS = 5
SERVER_ERROR = 500
LOG_LINES = 20
QUOTED_CHARS = 256


class MissingError(InputError):
    """The cluster has no such object."""


class UnknownKindError(InputError):
    """The cluster's API has no such kind."""


class StaleError(ConflictError):
    """The object was changed by somebody else since it was read."""


@dataclass(frozen=True)
class ServiceAddress:
    """Where a Service answers: an address of the cluster, no name, and its ports by name."""

    host: str
    ports: dict[str, int]


class Cluster:
    """One cluster, seen from the serving namespace."""

    def __init__(self, api: Any, namespace: str, clock: Clock) -> None:
        """`api` is a kubernetes.client.ApiClient."""
        from kubernetes.dynamic import DynamicClient

        self.namespace, self._clock = namespace, clock
        self._known: dict[str, bool] = {}
        with _translated("the cluster"):
            self._client = DynamicClient(api)

    @classmethod
    def connect(cls, site: Site, *, kubeconfig: Path | None = None) -> Self:
        """By kubeconfig (given, or as KUBECONFIG says), or by the pod's service account.

        Raises:
            InputError: there is neither.
        """
        from kubernetes import client, config

        settings = client.Configuration()
        known = [Path(name).expanduser() for name in config.KUBE_CONFIG_DEFAULT_LOCATION.split(":") if name]
        file, context = (str(kubeconfig) if kubeconfig else None), site.kubernetes.context
        try:
            if file or any(path.exists() for path in known):
                config.load_kube_config(config_file=file, context=context, client_configuration=settings)
            else:
                config.load_incluster_config(client_configuration=settings)
        except config.ConfigException as error:
            raise InputError(
                f"no way to the cluster: {error}. Set KUBECONFIG, check kubernetes.context of site {site.name}, or run "
                "in a pod whose service account token is mounted."
            ) from error
        return cls(client.ApiClient(settings), site.kubernetes.serving_namespace, SystemClock())

    def apply(self, objects: Iterable[Document]) -> None:
        """Server-side apply, in order; fields that others manage and these objects name become ours."""
        for item in objects:
            what = _name(item)
            with _translated(what):
                self._resource(item["kind"], item["apiVersion"]).server_side_apply(
                    body=item,
                    name=item["metadata"]["name"],
                    namespace=item["metadata"].get("namespace"),
                    field_manager=FIELD_MANAGER,
                    force_conflicts=True,
                    _request_timeout=TIMEOUT_S,
                )

    def get(self, kind: str, name: str) -> Document | None:
        """An object of the serving namespace; None when it is absent."""
        if not self._has(kind):
            return None
        try:
            with _translated(f"{kind} {name}"):
                return self._plain(
                    self._resource(kind).get(name=name, namespace=self.namespace, _request_timeout=TIMEOUT_S)
                )
        except MissingError:
            return None

    def find(self, kind: str, labels: dict[str, str]) -> list[Document]:
        """Objects of the serving namespace that carry every label."""
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        if not self._has(kind):
            return []
        with _translated(f"{kind} list"):
            found = self._resource(kind).get(
                namespace=self.namespace, label_selector=selector, _request_timeout=TIMEOUT_S
            )
        return [{**item, "kind": kind} for item in self._plain(found)["items"]]

    def delete(self, kind: str, name: str, *, version: str | None = None) -> bool:
        """Delete an object and what it owns, in the background; whether it was there.

        Raises:
            StaleError: it is not at the resource version that was given.
        """
        if not self._has(kind):
            return False
        body: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if version:
            body["preconditions"] = {"resourceVersion": version}
        try:
            with _translated(f"{kind} {name}"):
                self._resource(kind).delete(name=name, namespace=self.namespace, body=body, _request_timeout=TIMEOUT_S)
        except MissingError:
            return False
        return True

    def service_address(self, name: str) -> ServiceAddress | None:
        """Where a Service of the serving namespace answers; None when there is none.

        Raises:
            UnavailableError: it has no address yet.
        """
        service = self.get("Service", name)
        if service is None:
            return None
        host = service["spec"].get("clusterIP")
        if not host or host == "None":
            raise UnavailableError(f"Service {self.namespace}/{name} has no cluster address; it needs a ClusterIP.")
        ports = {port.get("name") or str(port["port"]): int(port["port"]) for port in service["spec"]["ports"]}
        return ServiceAddress(host, ports)

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
                f"Service {self.namespace}/{name}-candidate does not exist, so there is no candidate to ask. "
                "Clear the task roll-out of this run."
            )
        return address

    def ready_pods(self, labels: dict[str, str]) -> list[str]:
        """Names of the pods with these labels that are ready and not on their way out."""
        return [pod["metadata"]["name"] for pod in self.find("Pod", labels) if pod_state.is_ready(pod)]

    def endpoints(self, service: str) -> set[str]:
        """Names of the pods that a Service sends connections to now."""
        slices = self.find("EndpointSlice", {"kubernetes.io/service-name": service})
        return {
            endpoint["targetRef"]["name"]
            for item in slices
            for endpoint in item.get("endpoints") or []
            if (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("targetRef")
        }

    def wait_available(self, kind: str, name: str, timeout_s: float) -> None:
        """Wait until every replica of the workload's newest generation is available and no older one is left.

        Raises:
            InputError: a pod cannot start and never will; its own words are in the message.
            UnavailableError: no node has room for a pod, or the workload is not available after `timeout_s`.
        """
        began = reported = self._clock.monotonic()
        while True:
            item = self.get(kind, name)
            if item is None:
                raise InputError(f"{kind} {self.namespace}/{name} does not exist. Clear the task roll-out.")
            if workload_state.is_available(item):
                return
            pods, now = self._newest_pods(item), self._clock.monotonic()
            self._raise_if_hopeless(pods, now - began)
            if now - began > timeout_s:
                self._give_up(item, pods, timeout_s)
            if now - reported >= REPORT_EVERY_S:
                reported = now
                waited = f"{now - began:.0f} of at most {timeout_s:.0f} s"
                log.info("%s: waited %s: %s", name, waited, pod_state.in_words(pods))
            self._clock.sleep(POLL_S)

    def lease_holder(self, name: str) -> LeaseHolder | None:
        """Who took the lease last and did not give it back, be it expired or not."""
        lease = self.get("Lease", name)
        return lease_object.holder_of(lease) if lease else None

    def acquire_lease(self, name: str, holder: str, duration_s: int) -> LeaseHolder | None:
        """Take, take over when expired, or renew a lease. None when it is ours now, otherwise who has it.

        Raises:
            UnavailableError: others changed it again and again meanwhile.
        """
        for _ in range(LEASE_ATTEMPTS):
            now, lease = self._clock.now(), self.get("Lease", name)
            current = lease_object.holder_of(lease) if lease else None
            if current and current.holder != holder and current.until > now:
                return current
            since = current.since if current and current.holder == holder else now
            try:
                self._put_lease(name, lease, lease_object.spec_of(holder, duration_s, since, now))
            except (StaleError, MissingError):
                continue
            return None
        raise UnavailableError(f"Lease {self.namespace}/{name} was changed by others {LEASE_ATTEMPTS} times. Retry.")

    def release_lease(self, name: str, holder: str) -> None:
        """Give a lease back; nothing when somebody else has it by now."""
        lease = self.get("Lease", name)
        current = lease_object.holder_of(lease) if lease else None
        if lease and current and current.holder == holder:
            with contextlib.suppress(StaleError, MissingError):
                self.delete("Lease", name, version=lease["metadata"]["resourceVersion"])

    def log_tail(self, pod: str, container: str, lines: int = LOG_LINES) -> str:
        """The last lines that a container printed; empty when there are none."""
        from kubernetes import client

        try:
            with _translated(f"log of {pod}"):
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

    def _newest_pods(self, workload: Document) -> list[Document]:
        """Pods of the newest generation: an older one's trouble says nothing about this one."""
        if workload["kind"] == LEADER_WORKER_SET:
            return workload_state.newest_of_set(self.find("Pod", {SET_NAME: workload["metadata"]["name"]}))
        return self._newest_of_deployment(workload)

    def _newest_of_deployment(self, deployment: Document) -> list[Document]:
        labels = deployment["spec"]["selector"]["matchLabels"]
        revision = (deployment["metadata"].get("annotations") or {}).get(REVISION)
        for item in self.find("ReplicaSet", labels):
            if revision and (item["metadata"].get("annotations") or {}).get(REVISION) == revision:
                return self.find("Pod", {**labels, POD_TEMPLATE: item["metadata"]["labels"][POD_TEMPLATE]})
        return []

    def _raise_if_hopeless(self, pods: Iterable[Document], waited_s: float) -> None:
        for pod in pods:
            found = pod_state.trouble(pod)
            if found:
                said = found.message or self.log_tail(found.pod, found.container) or "it said nothing"
                log.error("%s, container %s, said last:\n%s", found.pod, found.container, said)
                raise InputError(f"pod {found.pod}, container {found.container}: {found.reason}: {_end(said)}")
            why = pod_state.unscheduled(pod)
            if why and waited_s > UNSCHEDULABLE_AFTER_S:
                raise UnavailableError(f"pod {pod['metadata']['name']} found no node in {waited_s:.0f} s: {_end(why)}")

    def _give_up(self, workload: Document, pods: list[Document], timeout_s: float) -> NoReturn:
        said = [
            f"{container} said last: {_end(words or self.log_tail(pod, container) or 'nothing')}"
            for pod, container, words in list(pod_state.waiting_for(pods))[:1]
        ]
        events = [line for pod in pods for line in self._warnings(pod["metadata"]["name"])]
        for line in events:
            log.error("event: %s", line)
        raise UnavailableError(
            f"{_name(workload)} is not available after {timeout_s:.0f} s "
            f"(serving.ready_timeout_s): {'; '.join([pod_state.in_words(pods), *said, *map(_end, events[-1:])])}"
        )

    def _warnings(self, pod: str) -> list[str]:
        """The pod's warning events, oldest first; none when they cannot be read."""
        try:
            with _translated(f"events of {pod}"):
                found = self._resource("Event", "v1").get(
                    namespace=self.namespace,
                    field_selector=f"involvedObject.name={pod},type=Warning",
                    _request_timeout=TIMEOUT_S,
                )
        except PipelineError:  # they would only have explained another error
            return []
        return [f"{event['reason']}: {event['message']}" for event in self._plain(found)["items"]]

    def _put_lease(self, name: str, before: Document | None, spec: Document) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        document = {"apiVersion": API_VERSIONS["Lease"], "kind": "Lease", "metadata": metadata, "spec": spec}
        with _translated(f"Lease {name}"):
            if before is None:
                self._resource("Lease").create(body=document, namespace=self.namespace, _request_timeout=TIMEOUT_S)
            else:
                metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
                self._resource("Lease").replace(body=document, namespace=self.namespace, _request_timeout=TIMEOUT_S)

    def _has(self, kind: str) -> bool:
        """Whether the cluster knows the kind; looked up once, for the client reads the whole API for an unknown one."""
        if kind in OPTIONAL_KINDS and kind not in self._known:
            try:
                with _translated(kind):
                    self._resource(kind)
            except UnknownKindError:
                self._known[kind] = False
            else:
                self._known[kind] = True
        return self._known.get(kind, True)

    def _resource(self, kind: str, api_version: str | None = None) -> Any:
        return self._client.resources.get(api_version=api_version or API_VERSIONS.get(kind, "v1"), kind=kind)

    def _plain(self, found: Any) -> Document:
        plain: Document = found.to_dict()
        return plain


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """The one place where the client's errors become ours."""
    from kubernetes.client.exceptions import ApiException
    from kubernetes.dynamic.exceptions import ResourceNotFoundError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        status, said = int(error.status or 0), _said(error)
        if status == 404:  # noqa: PLR2004
            raise MissingError(
                f"{what} does not exist: {said}; expected to find it. Apply k8s_manifests/ where it comes from there, "
                "else run the step again."
            ) from error
        if status == 409:  # noqa: PLR2004
            raise StaleError(
                f"{what}: {said}; expected that nobody else writes it meanwhile. Run the step again."
            ) from error
        if status in {401, 403}:
            raise InputError(
                f"{what}: the cluster does not allow it: {said}. Check the service account's Role."
            ) from error
        if status >= SERVER_ERROR or status in {0, 429}:
            raise UnavailableError(f"{what}: the cluster answers {status}: {said}; a retry may help.") from error
        raise InputError(
            f"{what}: the cluster refuses it ({status}): {said}; expected it to be taken. Mend the field that "
            "it names, in the spec's serving part or the site file."
        ) from error
    except ResourceNotFoundError as error:
        raise UnknownKindError(
            f"{what}: the cluster does not know this kind: {error}. Is its API installed?"
        ) from error
    except (HTTPError, OSError) as error:
        raise UnavailableError(
            f"{what}: the cluster does not answer: {str(error)[:200]}. Is it up at the kubeconfig's address?"
        ) from error


def _end(text: str) -> str:
    """The end of a text, in one line: what is said last says why."""
    line = " ".join(text.split())
    return line if len(line) <= QUOTED_CHARS else f"...{line[-QUOTED_CHARS:]}"


def _said(error: Any) -> str:
    text = error.body if isinstance(error.body, str) else (error.body or b"").decode(errors="replace")
    with contextlib.suppress(ValueError):
        text = str(json.loads(text).get("message", text))
    return text[:QUOTED_CHARS] or str(error.reason)


def _name(item: Document) -> str:
    namespace = item["metadata"].get("namespace")
    return f"{item['kind']} {namespace + '/' if namespace else ''}{item['metadata']['name']}"
