"""Answers the liveness probe of OpenAI's API: does each of its processes answer on its own socket?

Every probe is a process of its own, so nothing but the standard library is imported.

    python -m slipway.tasks.serving.pod.openai_live SOCKET...     in the folder of the sockets
"""

import http.client
import socket
import sys
from collections.abc import Sequence

PATH = "/health/live"
TIMEOUT_S = 6.0
"""For each socket; Kubernetes gives the probe 30 seconds."""


def silent(sockets: Sequence[str]) -> list[str]:
    """The sockets whose process does not answer, or says that it makes no progress, each with the reason."""
    problems = []
    for name in sockets:
        connection = _Connection(name)
        try:
            connection.request("GET", PATH)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            problems.append(f"{name}: {str(error) or type(error).__name__}")
        else:
            problems += [f"{name}: HTTP status {status}"] if status >= http.client.INTERNAL_SERVER_ERROR else []
        finally:
            connection.close()
    return problems


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket; relative, because a Unix socket's path ends at 107 bytes."""

    def __init__(self, name: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._name = name

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._name)


if __name__ == "__main__":
    if found := silent(sys.argv[1:]):
        sys.exit(f"not alive: {', '.join(found)}")
