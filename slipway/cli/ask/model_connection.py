"""A connection to a model's server: its Service's external address, a forwarded port of a ready pod, or a given one.

Nothing here imports the Kubernetes client, gRPC or numpy, which take longer than the first token of an answer may.
"""

import http.client
from typing import TYPE_CHECKING

from slipway.cli.kube.route import Direct, ThroughPod, external, given, through_pod
from slipway.tasks.adapters.kube import pod_state
from slipway.tasks.contracts.errors import InputError, UnavailableError

if TYPE_CHECKING:
    from slipway.cli.kube.api import KubeApi
    from slipway.cli.kube.port_forward import ForwardedPort

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 300.0
SLICES = "apis/discovery.k8s.io/v1:endpointslices"
LIVE_SERVICES = "app.kubernetes.io/managed-by=slipway,slipway.dev/role=live"


class ModelServers:
    """Opens connections to a model's servers, for several threads. `forget` makes it look for the route again."""

    def __init__(
        self,
        name: str,
        *,
        api: "KubeApi | None" = None,
        host: str | None = None,
        candidate: bool = False,
        api_key: str = "",
    ) -> None:
        """Either `host` names the servers, as `--host` does, or `api` finds those of the model's Service.

        `api_key` is what the servers may ask for.
        """
        self._name, self._api, self._candidate, self.api_key = name, api, candidate, api_key
        self._given = given(host) if host else None
        self._found: Direct | ThroughPod | None = None

    def open(self) -> tuple[http.client.HTTPConnection, Direct | ThroughPod]:
        """A connection, and where it goes.

        Raises:
            InputError: there is no such release, or the cluster refuses the credentials.
            UnavailableError: no pod is ready, or the cluster or the server does not answer.
        """
        where = self._given or self._found
        if where is None:
            with self._cluster.understood():
                where = find_route(self._cluster, self._name, candidate=self._candidate)
        connection = connect(where, self._api)
        self._found = where
        return connection, where

    def forget(self) -> None:
        """Look for the route again at the next connection: a pod that answered before may be gone."""
        self._found = None

    @property
    def _cluster(self) -> "KubeApi":
        assert self._api is not None
        return self._api


def find_route(api: "KubeApi", name: str, *, candidate: bool = False) -> Direct | ThroughPod:
    """The route to the model's live release, or to its candidate.

    Raises:
        InputError: there is no such release.
        UnavailableError: none of its pods is ready.
    """
    service_name = f"{name}-candidate" if candidate else name
    service = api.get(f"services/{service_name}")
    if service is None:
        raise _no_service(api, name, service_name)
    slices = [] if external(service) else api.items(SLICES, labelSelector=f"kubernetes.io/service-name={service_name}")
    route = external(service) or through_pod(service, slices)
    if route is None:
        labels = service["spec"].get("selector") or {}
        pods = api.items("pods", labelSelector=",".join(f"{key}={value}" for key, value in labels.items()))
        raise UnavailableError(
            f"no pod of Service {api.namespace}/{service_name} is ready",
            found=pod_state.summary(pods),
            remedy=f"Try again in a moment; `slipway status {name}` shows the newest runs.",
        )
    return route


def _no_service(api: "KubeApi", name: str, service: str) -> InputError:
    live = [item["metadata"]["name"] for item in api.items("services", labelSelector=LIVE_SERVICES)]
    missing = f"there is no Service {api.namespace}/{service}"
    if service != name:
        return InputError(
            f"{name} has no candidate: {missing}", remedy="Leave out --candidate to use the live release."
        )
    return InputError(
        f"no release of {name} is live: {missing}",
        found=f"these live models: {', '.join(sorted(live)) or 'none'}",
        remedy=f"Correct the name, or make a release with `slipway release {name}`.",
    )


class _ForwardedConnection(http.client.HTTPConnection):
    """An HTTP connection through a forwarded port."""

    def __init__(self, port: "ForwardedPort") -> None:
        super().__init__("localhost")  # the name that the kubelet connects to inside the pod
        self.sock = port  # it has the methods that http.client calls


def connect(where: Direct | ThroughPod, api: "KubeApi | None" = None) -> http.client.HTTPConnection:
    """Open a connection; a pod's goes through `api`.

    Raises:
        UnavailableError: the address does not answer, or the API cannot forward to the pod.
    """
    if isinstance(where, ThroughPod):
        assert api is not None
        return _ForwardedConnection(api.forward(where.pod, where.port))
    connection = http.client.HTTPConnection(where.host, where.port, timeout=CONNECT_TIMEOUT_S)
    try:
        connection.connect()
    except OSError as error:
        raise UnavailableError(
            f"cannot connect to {where}",
            found=error,
            remedy="Check that this machine can reach the address, or use `kubectl port-forward` to the pod and --host "
            "127.0.0.1:PORT.",
        ) from error
    return connection
