"""`slipway ask`: sends one prompt to a model through its Service, from inside or outside the cluster.

Nothing here imports the Kubernetes client, gRPC or numpy, so the first token arrives within two seconds.
"""

import http.client
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import Name, settings_of
from cli.generate import GenerateClient
from cli.route import Direct, ThroughPod, external, given, through_pod
from tasks.adapters import pod_state
from tasks.adapters.triton import Chunk, GenerateRequest
from tasks.contracts.errors import InputError, UnavailableError

if TYPE_CHECKING:
    from cli.kube_api import KubeApi
    from cli.port_forward import ForwardedPort

ANSWER_TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 5.0
SLICES = "apis/discovery.k8s.io/v1:endpointslices"
LIVE_SERVICES = "app.kubernetes.io/managed-by=slipway,slipway.dev/role=live"


def ask(
    context: typer.Context,
    name: Name,
    question: Annotated[str, typer.Argument(help="The prompt.")],
    candidate: Annotated[
        bool, typer.Option("--candidate", help="Use the candidate instead of the live release.")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream/--no-stream", help="Print the answer as it arrives.")] = True,
    lora: Annotated[
        str | None, typer.Option("--lora", metavar="ADAPTER", help="Answer with this adapter of the release.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum length of the answer, in tokens.")] = 128,
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Send to this HTTP port of Triton, without using the cluster."),
    ] = None,
) -> None:
    """Send a prompt to a model through its Service.

    Uses the Service's external address if it has one. Otherwise the Kubernetes API forwards a port of a ready pod,
    which needs the Role slipway-user.
    """
    request = GenerateRequest(question, max_tokens, lora=lora)
    if host:
        where: Direct | ThroughPod = given(host)
        connection = _connected(where)
    else:
        api = settings_of(context).kube_api()
        where = find_route(api, name, candidate=candidate)
        connection = _connected(where, api)
    with closing(connection):
        _print(GenerateClient(connection, str(where)).stream(name, request, ANSWER_TIMEOUT_S), where, stream=stream)


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


def _connected(where: Direct | ThroughPod, api: "KubeApi | None" = None) -> http.client.HTTPConnection:
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


def _print(chunks: Iterator[Chunk], where: Direct | ThroughPod, *, stream: bool) -> None:
    """Print the answer; a piece holds one or more tokens, so pieces are counted."""
    started_at = time.monotonic()
    pieces, first_s, reason = [], None, ""
    for chunk in chunks:
        if stream:
            typer.echo(chunk.text, nl=False)
        pieces += [chunk.text] if chunk.text else []
        first_s = chunk.at_s - started_at if first_s is None and chunk.text else first_s
        reason = chunk.finish_reason or reason
    typer.echo("" if stream else "".join(pieces))
    first = f"first piece after {first_s:.2f} s, " if first_s is not None else ""
    total = f"{len(pieces)} pieces in {time.monotonic() - started_at:.2f} s"
    typer.echo(f"[{first}{total}, ended by {reason or 'the server'}; {where}]", err=True)
