"""The door to Kubernetes: apply, look, wait, delete and lease. Vendor errors end here."""

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from tasks.adapters.clock import Clock, SystemClock
from tasks.contracts.errors import ConflictError, InputError, PipelineError, UnavailableError
from tasks.contracts.site import Site

log = logging.getLogger(__name__)

Document = dict[str, Any]
"""A Kubernetes object as JSON."""

FIELD_MANAGER = "slipway"
API_VERSIONS = {
    "Deployment": "apps/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
}
"""Of kinds that are not in the core group."""

POLL_S = 0.5
REPORT_EVERY_S = 10.0
UNSCHEDULABLE_AFTER_S = 600.0
TIMEOUT_S = 30
SERVER_ERROR = 500
GONE_FOR_GOOD = {
    "CrashLoopBackOff",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
}
WRONG_INPUT = 65
LOG_LINES = 20


class MissingError(InputError):
    """The cluster has no such object."""


class StaleError(ConflictError):
    """The object was changed by somebody else since it was read."""


@dataclass(frozen=True)
class ServiceAddress:
    """Where a Service answers: an address of the cluster, no name, and its ports by name."""

    host: str
    ports: dict[str, int]


@dataclass(frozen=True)
class LeaseHolder:
    """Who holds a lease, and until when unless it is renewed."""

    holder: str
    since: datetime
    until: datetime


class Cluster:
    """One cluster, seen from the serving namespace."""

    def __init__(self, api: Any, namespace: str, clock: Clock) -> None:
        """`api` is a kubernetes.client.ApiClient."""
        from kubernetes.dynamic import DynamicClient

        self.namespace, self._clock = namespace, clock
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
        file = str(kubeconfig) if kubeconfig else None
        try:
            config.load_config(config_file=file, context=site.kubernetes.context, client_configuration=settings)
        except TypeError:  # the in-cluster loader takes no context
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
        with _translated(f"{kind} list"):
            found = self._resource(kind).get(
                namespace=self.namespace, label_selector=selector, _request_timeout=TIMEOUT_S
            )
        return list(self._plain(found)["items"])

    def delete(self, kind: str, name: str) -> bool:
        """Delete an object and what it owns, in the background; whether it was there."""
        try:
            with _translated(f"{kind} {name}"):
                self._resource(kind).delete(
                    name=name,
                    namespace=self.namespace,
                    body={"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"},
                    _request_timeout=TIMEOUT_S,
                )
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
        return [
            pod["metadata"]["name"]
            for pod in self.find("Pod", labels)
            if "deletionTimestamp" not in pod["metadata"] and _condition(pod, "Ready") == "True"
        ]

    def endpoints(self, service: str) -> set[str]:
        """Names of the pods that a Service sends connections to now."""
        slices = self.find("EndpointSlice", {"kubernetes.io/service-name": service})
        return {
            endpoint["targetRef"]["name"]
            for item in slices
            for endpoint in item.get("endpoints") or []
            if (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("targetRef")
        }

    @staticmethod
    def is_available(deployment: Document) -> bool:
        """Whether every replica is available in the newest generation, and no older pod is left."""
        status, wanted = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
        return bool(
            status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
            and status.get("updatedReplicas", 0) == wanted
            and status.get("availableReplicas", 0) == wanted
            and status.get("replicas", 0) == wanted
        )

    def wait_available(self, deployment: str, timeout_s: float) -> None:
        """Wait until every replica of the deployment's newest generation is available and no older one is left.

        Raises:
            InputError: a pod cannot start and never will; its own words are in the message.
            UnavailableError: no node has room for a pod, or the deployment is not available after `timeout_s`.
        """
        began = reported = self._clock.monotonic()
        while True:
            item = self.get("Deployment", deployment)
            if item is None:
                raise InputError(f"Deployment {self.namespace}/{deployment} does not exist. Clear the task roll-out.")
            if self.is_available(item):
                return
            pods = self.find("Pod", item["spec"]["selector"]["matchLabels"])
            self._raise_if_hopeless(pods, self._clock.monotonic() - began)
            now = self._clock.monotonic()
            if now - began > timeout_s:
                raise UnavailableError(
                    f"Deployment {self.namespace}/{deployment} is not available after {timeout_s:.0f} s "
                    f"(serving.ready_timeout_s): {_state_words(pods)}. {self._last_words(pods)}"
                )
            if now - reported > REPORT_EVERY_S:
                reported = now
                log.info("%s: %.0f s of at most %.0f s: %s", deployment, now - began, timeout_s, _state_words(pods))
            self._clock.sleep(POLL_S)

    def lease_holder(self, name: str) -> LeaseHolder | None:
        """Who holds the lease; None when nobody does, or the holder let it expire."""
        lease = self.get("Lease", name)
        holder = _holder(lease) if lease else None
        return holder if holder and holder.until > self._clock.now() else None

    def acquire_lease(self, name: str, holder: str, duration_s: int) -> LeaseHolder | None:
        """Take or renew a lease. None when it is ours now, otherwise who has it."""
        now = self._clock.now()
        lease = self.get("Lease", name)
        current = _holder(lease) if lease else None
        if current and current.holder != holder and current.until > now:
            return current
        since = current.since if current and current.holder == holder else now
        document: Document = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": duration_s,
                "acquireTime": _micro_time(since),
                "renewTime": _micro_time(now),
            },
        }
        try:
            with _translated(f"Lease {name}"):
                if lease is None:
                    self._resource("Lease").create(body=document, namespace=self.namespace, _request_timeout=TIMEOUT_S)
                else:
                    document["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
                    self._resource("Lease").replace(body=document, namespace=self.namespace, _request_timeout=TIMEOUT_S)
        except StaleError:
            return self.lease_holder(name)
        return None

    def release_lease(self, name: str, holder: str) -> None:
        """Give a lease back; nothing when somebody else has it by now."""
        lease = self.get("Lease", name)
        current = _holder(lease) if lease else None
        if current and current.holder == holder:
            self.delete("Lease", name)

    def log_tail(self, pod: str, container: str, lines: int = LOG_LINES) -> str:
        """The last lines that a container printed; empty when there are none."""
        from kubernetes import client

        try:
            with _translated(f"log of {pod}"):
                text = client.CoreV1Api(self._client.client).read_namespaced_pod_log(
                    pod, self.namespace, container=container, tail_lines=lines, _request_timeout=TIMEOUT_S
                )
        except PipelineError:
            return ""
        return str(text).strip()

    def _raise_if_hopeless(self, pods: Iterable[Document], waited_s: float) -> None:
        for pod in pods:
            name = pod["metadata"]["name"]
            for status in _statuses(pod):
                ended = _ended(status)
                if ended.get("exitCode") == WRONG_INPUT:
                    words = (ended.get("message") or "").strip() or self.log_tail(name, status["name"])
                    raise InputError(f"pod {name}, container {status['name']}: {words}")
                waiting = (status.get("state") or {}).get("waiting") or {}
                if waiting.get("reason") in GONE_FOR_GOOD:
                    last = (ended.get("message") or "").strip() or self.log_tail(name, status["name"])
                    said = last or waiting.get("message", "")
                    raise InputError(f"pod {name}, container {status['name']}: {waiting['reason']}: {said}")
            if waited_s > UNSCHEDULABLE_AFTER_S and _condition(pod, "PodScheduled") == "False":
                raise UnavailableError(f"pod {name} found no node for {waited_s:.0f} s: {_reason(pod, 'PodScheduled')}")

    def _last_words(self, pods: Iterable[Document]) -> str:
        for pod in pods:
            for status in _statuses(pod):
                if not status.get("ready") and (said := self.log_tail(pod["metadata"]["name"], status["name"])):
                    return f"Last words of {status['name']}: {said}"
        return ""

    def _resource(self, kind: str, api_version: str | None = None) -> Any:
        return self._client.resources.get(api_version=api_version or API_VERSIONS.get(kind, "v1"), kind=kind)

    def _plain(self, found: Any) -> Document:
        plain: Document = found.to_dict()
        return plain


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """The one place where the client's errors become ours."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        status, said = int(error.status or 0), _said(error)
        if status == 404:  # noqa: PLR2004
            raise MissingError(f"{what} does not exist: {said}") from error
        if status == 409:  # noqa: PLR2004
            raise StaleError(f"{what}: {said}") from error
        if status in {401, 403}:
            raise InputError(
                f"{what}: the cluster does not allow it: {said}. Check the service account's Role."
            ) from error
        if status >= SERVER_ERROR or status in {0, 429}:
            raise UnavailableError(f"{what}: the cluster answers {status}: {said}") from error
        raise InputError(f"{what}: the cluster refuses it ({status}): {said}") from error
    except (HTTPError, OSError) as error:
        raise UnavailableError(f"{what}: the cluster does not answer: {str(error)[:200]}") from error


def _said(error: Any) -> str:
    text = error.body if isinstance(error.body, str) else (error.body or b"").decode(errors="replace")
    with contextlib.suppress(ValueError):
        text = str(json.loads(text).get("message", text))
    return text[:256] or str(error.reason)


def _name(item: Document) -> str:
    namespace = item["metadata"].get("namespace")
    return f"{item['kind']} {namespace + '/' if namespace else ''}{item['metadata']['name']}"


def _statuses(pod: Document) -> list[Document]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _ended(status: Document) -> Document:
    state, last = status.get("state") or {}, status.get("lastState") or {}
    return state.get("terminated") or last.get("terminated") or {}


def _condition(pod: Document, kind: str) -> str | None:
    return next((c["status"] for c in (pod.get("status") or {}).get("conditions") or [] if c["type"] == kind), None)


def _reason(pod: Document, kind: str) -> str:
    found = (c for c in pod["status"].get("conditions") or [] if c["type"] == kind)
    return next((c.get("message") or c.get("reason") or "no reason given" for c in found), "no reason given")


def _state_words(pods: Iterable[Document]) -> str:
    words = []
    for pod in pods:
        for status in _statuses(pod):
            state = status.get("state") or {}
            kind = next(iter(state), "waiting")
            detail = (state.get(kind) or {}).get("reason")
            words.append(f"{status['name']} {kind}{f' ({detail})' if detail else ''}")
    return ", ".join(words) or "no pod yet"


def _holder(lease: Document) -> LeaseHolder | None:
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return None
    renewed = datetime.fromisoformat(spec["renewTime"])
    since = datetime.fromisoformat(spec.get("acquireTime") or spec["renewTime"])
    return LeaseHolder(
        spec["holderIdentity"], since, renewed + timedelta(seconds=spec.get("leaseDurationSeconds") or 0)
    )


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
