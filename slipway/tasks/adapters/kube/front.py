"""The adapter to the admin interface of a pod's front, Envoy, over its Unix socket.

Endpoints: https://www.envoyproxy.io/docs/envoy/v1.40.0/operations/admin
"""

import http.client
import json
import os
import socket
from pathlib import Path

from slipway.tasks.contracts.errors import UnavailableError

TIMEOUT_S = 30.0
"""One answer may take this long. A front that is given up leaves its clients to a server that is ending."""
LISTENERS = ("http", "grpc")
"""Stat prefixes of k8s_manifests/serving/front_config.yaml.j2. Admin requests have one of their own."""


class EnvoyFront:
    """The admin interface of one Envoy; implements tasks.serving.pod.drain.Front."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def close_connections(self) -> None:
        """Fail Envoy's own health check, which makes it close each connection with its next answer."""
        self._post("/healthcheck/fail")

    def stop_listening(self) -> None:
        """Close the listening sockets."""
        self._post("/drain_listeners")

    def requests_in_flight(self) -> int:
        """Sum of the listeners' gauges."""
        stats = json.loads(self._request("GET", r"/stats?format=json&filter=^http\..*\.downstream_rq_active$"))["stats"]
        by_name = {stat["name"]: int(stat["value"]) for stat in stats}
        return sum(by_name[f"http.{listener}.downstream_rq_active"] for listener in LISTENERS)

    def quit(self) -> None:
        """End the process."""
        self._post("/quitquitquit")

    def _post(self, path: str) -> None:
        self._request("POST", path)

    def _request(self, method: str, path: str) -> bytes:
        connection = _Connection(self._path)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(
                f"the front does not answer at {self._path}: {error}", remedy="Check that the container front runs."
            ) from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise UnavailableError(
                f"the front rejected {method} {path} at {self._path}",
                found=f"{response.status} {body[:200]!r}",
                expected="200",
            )
        return body


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("front", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect through the open folder: the path of a socket may have at most 107 bytes (unix(7))."""
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(TIMEOUT_S)
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)
