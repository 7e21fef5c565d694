"""The few Kubernetes API requests of `slipway ask`: reading Services and their endpoints, and forwarding a port."""

import contextlib
import ipaddress
import time
from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from slipway.cli.deadline import within
from slipway.cli.kube.kubeconfig import Access
from slipway.cli.kube.port_forward import PROTOCOL, ForwardedPort
from slipway.tasks.contracts.base import parse_json
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError

ROLE = "slipway-user"
"""The Role in k8s_manifests/base that permits every request of this module."""

CONNECT_S, SILENT_S = 5.0, 30.0
"""How long a connection may take to be there, unless it is forwarded, and how long the cluster may be silent."""
BODY_S = 30.0
BODY_BYTES = 64 << 20
PIECE_BYTES = 1 << 20
QUOTED_CHARS = 256

Document = dict[str, Any]


class KubeApi:
    """Requests to one namespace of one cluster."""

    def __init__(self, access: Access, namespace: str) -> None:
        import urllib3  # noqa: PLC0415 - takes a tenth of a second, which other commands need not wait for

        self.namespace, self._access = namespace, access
        self._server = urlsplit(access.server)
        self._proxy = access.proxy or _proxy_of(self._server.scheme, self._server.hostname or "")
        names = {"server_hostname": access.server_name, "assert_hostname": access.server_name}
        options: dict[str, Any] = {
            "ssl_context": access.tls,
            "retries": False,
            "timeout": urllib3.Timeout(connect=CONNECT_S, read=SILENT_S),
            **(names if access.server_name else {}),
        }
        self._pool = urllib3.ProxyManager(self._proxy, **options) if self._proxy else urllib3.PoolManager(**options)

    def get(self, path: str, **query: str) -> Document | None:
        """A document in the namespace; None if it does not exist.

        Args:
            path: such as `services/demo`, with the prefix `apis/<group>/<version>:` outside the core group.
            query: parameters, such as `labelSelector` for a list.

        Raises:
            InputError: the cluster refuses the credentials or the request.
            UnavailableError: the cluster does not answer.
        """
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        url = f"{self._access.server}{self._path(path)}{'?' + urlencode(query) if query else ''}"
        try:
            headers = {**self._access.headers, "Accept": "application/json"}
            ask = partial(self._pool.request, "GET", url, headers=headers, preload_content=False)
            answer = within(BODY_S, ask)
            data = _body(answer)
        except (HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        except ValueError:  # its text and its chain quote the header, which holds a token
            raise InputError(
                f"a request to the cluster at {self._access.server} cannot be sent",
                found="a header or an address that HTTP does not allow",
                remedy="Check the server, the user and the token in the kubeconfig.",
            ) from None
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._refusal(path, answer.status, data)
        try:
            document = parse_json(data, path)
        except InputError as error:
            raise self.not_kubernetes(error.what) from error
        if not isinstance(document, dict):
            raise self.not_kubernetes(repr(document)[:QUOTED_CHARS])
        return document

    def not_kubernetes(self, found: str) -> InputError:
        """The error about an answer that no Kubernetes API gives."""
        return InputError(
            f"{self._access.server} is not a Kubernetes API",
            found=found,
            expected="Services, EndpointSlices and pods",
            remedy="Check that the kubeconfig names a Kubernetes API server.",
        )

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Reading the documents of this API: what a wrong shape of theirs raises is its error.

        Raises:
            InputError: they have another shape.
        """
        try:
            yield
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise self.not_kubernetes(f"{type(error).__name__}: {error}"[:QUOTED_CHARS]) from error

    def items(self, path: str, **query: str) -> list[Document]:
        """Objects of a list; see `get`."""
        items: list[Document] = (self.get(path, **query) or {}).get("items") or []
        return items

    def forward(self, pod: str, port: int) -> ForwardedPort:
        """Connect to a port of a pod.

        Raises:
            InputError: the cluster refuses the credentials or the request.
            UnavailableError: the cluster does not answer, or the pod is gone.
        """
        import websocket  # noqa: PLC0415

        path = f"pods/{quote(pod)}/portforward"
        scheme = "wss" if self._server.scheme == "https" else "ws"
        with self._translated(path):
            channels: Any = websocket.WebSocket(sslopt=self._tls_options())
            channels.settimeout(SILENT_S)
            channels.connect(
                f"{scheme}://{self._server.netloc}{self._path(path)}?ports={port}",
                header=dict(self._access.headers),
                subprotocols=[PROTOCOL],
                **self._proxy_options(),
            )
        return ForwardedPort(channels, pod, port)

    def _path(self, path: str) -> str:
        root, _, rest = path.rpartition(":")
        return f"{self._server.path}/{root or 'api/v1'}/namespaces/{quote(self.namespace)}/{rest}"

    def _tls_options(self) -> dict[str, Any]:
        name = self._access.server_name
        return {"context": self._access.tls} | ({"server_hostname": name} if name else {})

    def _proxy_options(self) -> dict[str, Any]:
        if not self._proxy:
            # without a proxy the client would read the environment itself, so this names one that applies to no host
            return {"http_proxy_host": "none", "http_no_proxy": ["*"]}
        proxy = urlsplit(self._proxy)
        options: dict[str, Any] = {"http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port or 80}
        options |= {"proxy_type": proxy.scheme.replace("https", "http")}
        return options | ({"http_proxy_auth": (proxy.username, proxy.password)} if proxy.username else {})

    @contextlib.contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        from websocket import WebSocketBadStatusException, WebSocketException  # noqa: PLC0415

        try:
            yield
        except WebSocketBadStatusException as error:
            if error.status_code == HTTPStatus.NOT_FOUND:
                raise UnavailableError(f"{path} is gone: the pod was replaced", remedy="Try again.") from error
            raise self._refusal(path, error.status_code, error.resp_body) from error
        except (WebSocketException, OSError) as error:
            raise self._unreachable(error) from error

    def _refusal(self, path: str, status: int, body: bytes | None) -> PipelineError:
        what = f"the cluster at {self._access.server} refused {path.rpartition(':')[2]}"
        answer = f"{status}: {_message(body)}".removesuffix(": ")
        if status == HTTPStatus.UNAUTHORIZED:
            return InputError(
                what, found=answer, remedy="Log in again: the kubeconfig's credentials are wrong or have expired."
            )
        if status == HTTPStatus.FORBIDDEN:
            return InputError(
                what,
                found=answer,
                remedy=f"Ask the cluster's administrator to bind you or one of your groups to Role {ROLE} in namespace "
                f"{self.namespace}, as k8s_manifests/base/rolebinding-user.yaml does.",
            )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            return UnavailableError(what, found=answer, remedy="Try again.")
        return InputError(what, found=answer)

    def _unreachable(self, error: Exception) -> PipelineError:
        text = " ".join(str(error).split())[:QUOTED_CHARS]
        if "CERTIFICATE_VERIFY_FAILED" in text:
            return InputError(
                f"the kubeconfig does not trust the certificate of the cluster at {self._access.server}",
                found=text,
                remedy="Get the kubeconfig again.",
            )
        return UnavailableError(
            f"cannot connect to the cluster at {self._access.server}",
            found=text,
            remedy="Check KUBECONFIG and the network (VPN).",
        )


def _body(answer: Any) -> bytes:
    """The body of an answer, whose size and time are limited, however it is compressed."""
    data, deadline = b"", time.monotonic() + BODY_S
    while piece := answer.read1(PIECE_BYTES, decode_content=False):
        data += piece
        if len(data) > BODY_BYTES or time.monotonic() > deadline:
            answer.close()
            raise OSError(f"an answer of more than {BODY_BYTES} bytes, or that takes longer than {BODY_S:.0f} s")
    answer.release_conn()
    return data


def _proxy_of(scheme: str, host: str) -> str | None:
    """The proxy that the environment names for a host. As in kubectl, none is used for this machine itself."""
    return None if _is_loopback(host) or proxy_bypass(host) else getproxies().get(scheme)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _message(body: bytes | None) -> str:
    """The message of a Status object, or the beginning of any other body."""
    text = (body or b"").decode(errors="replace")
    with contextlib.suppress(InputError):
        document = parse_json(text, "an answer")
        text = str(document.get("message", text)) if isinstance(document, Mapping) else text
    return " ".join(text.split())[:QUOTED_CHARS].rstrip(".")
