"""The adapter to what serves two releases at once: Triton's counters in their pods, and a question as a probe."""

import http.client
import logging
import time
from collections.abc import Callable

from slipway.tasks.adapters.kube import pod_state
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.connecting import connect
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.measured.traffic import Served, read_front_page, read_page

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
PAGE_BYTES = 16 * 2**20


class ServedTraffic:
    """What the pods of a model's releases have served so far."""

    def __init__(self, cluster: Cluster, model: str, metrics_port: int, front_port: int) -> None:
        self._cluster, self._model, self._port, self._front_port = cluster, model, metrics_port, front_port

    def counters(self, labels: dict[str, str]) -> dict[str, Served] | None:
        """What Triton has counted in each ready pod with these labels since it started.

        None when there is no such pod or one cannot be read: a part would look like a whole.
        """
        return self._read(labels, self._port, lambda page: read_page(page, self._model))

    def answers(self, labels: dict[str, str]) -> dict[str, Served] | None:
        """Likewise, what the pods' fronts have counted; not every release shows it."""
        return self._read(labels, self._front_port, read_front_page)

    def _read(self, labels: dict[str, str], port: int, read: Callable[[str], Served]) -> dict[str, Served] | None:
        traffic = {}
        for pod in self._cluster.find("Pod", labels):
            name, address = pod["metadata"]["name"], (pod.get("status") or {}).get("podIP")
            if not address or not pod_state.is_ready(pod):
                continue
            try:
                traffic[name] = read(_page(address, port))
            except (OSError, http.client.HTTPException, ValueError) as error:
                log.warning("metrics of pod %s at port %d cannot be read: %s", name, port, error)
                return None
        return traffic or None

    def pods(self, labels: dict[str, str], ports: dict[str, int]) -> dict[str, ServiceAddress]:
        """Addresses of the ready pods with these labels, by name."""
        return self._cluster.pod_addresses(labels, ports)

    def ask(self, service: ServiceAddress, request: GenerateRequest, timeout_s: float) -> tuple[str, float]:
        """The answer of a Service, or of a pod, to a question, and the seconds that it took.

        Raises:
            InputError: the server rejected the request.
            UnavailableError: there was no answer in time.
        """
        with connect(service) as client:
            began = time.monotonic()
            answer = client.generate(self._model, request, timeout_s)
            return answer.text, time.monotonic() - began


def _page(host: str, port: int) -> str:
    """A page of metrics.

    Raises:
        OSError: the server does not answer.
        http.client.HTTPException: it answers with something else.
    """
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        body = response.read(PAGE_BYTES + 1)
    finally:
        connection.close()
    if response.status != http.client.OK or len(body) > PAGE_BYTES:
        raise http.client.HTTPException(f"{host}:{port}/metrics answered {response.status} with {len(body)} bytes")
    return body.decode(errors="replace")
