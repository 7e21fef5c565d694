"""A port of a pod, forwarded by the Kubernetes API, as a socket for http.client.

Bytes go straight from the HTTP client to the WebSocket: no port is opened on this machine, which others may share.
local/cluster/api/port_forward.py implements the other end and cites the protocol.
"""

import contextlib
import io
from typing import TYPE_CHECKING, Any

from slipway.tasks.contracts.errors import UnavailableError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
PORT_BYTES = 2
QUOTED_CHARS = 256


class ForwardedPort:
    """A connection to a port of a pod, with the socket methods that http.client calls."""

    def __init__(self, channels: Any, pod: str, port: int) -> None:
        """`channels` is an open websocket.WebSocket, which this object closes."""
        self._channels, self._pod, self._port = channels, pod, port
        self._unread = b""
        self._opened: set[int] = set()

    def settimeout(self, seconds: float | None) -> None:
        """Limit how long each later call waits."""
        self._channels.settimeout(seconds)

    def sendall(self, data: bytes) -> None:
        """Send to the pod."""
        self._channels.send_binary(bytes((DATA,)) + data)

    def recv(self, size: int) -> bytes:
        """Receive at most `size` bytes from the pod; none at the end.

        Raises:
            UnavailableError: the node could not connect to the port.
            TimeoutError: nothing arrived in time.
        """
        from websocket import WebSocketConnectionClosedException, WebSocketTimeoutException  # noqa: PLC0415

        try:
            while not self._unread:
                message = self._channels.recv()
                if not message:  # the pod closed its end, and the node the WebSocket
                    return b""
                self._take(message if isinstance(message, bytes) else message.encode())
        except WebSocketTimeoutException as error:
            raise TimeoutError(str(error)) from error
        except WebSocketConnectionClosedException:
            return b""
        taken, self._unread = self._unread[:size], self._unread[size:]
        return taken

    def makefile(self, mode: str) -> io.BufferedReader:
        """A reader. Closing it leaves the connection open for the next request."""
        assert mode == "rb"
        return io.BufferedReader(_Reading(self))

    def close(self) -> None:
        """Close the connection without waiting for the node."""
        with contextlib.suppress(Exception):
            self._channels.send_close()
        self._channels.shutdown()

    def _take(self, message: bytes) -> None:
        channel, data = message[0], message[1:]
        if channel not in self._opened and len(data) == PORT_BYTES:
            self._opened.add(channel)
        elif channel == ERROR:
            text = " ".join(data.decode(errors="replace").split())
            raise UnavailableError(
                f"pod {self._pod} does not accept connections on port {self._port}",
                found=f"...{text[-QUOTED_CHARS:]}",
                remedy="Try again: its server is starting or stopping.",
            )
        else:
            self._unread += data


class _Reading(io.RawIOBase):
    def __init__(self, port: ForwardedPort) -> None:
        self._port = port

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._port.recv(len(view))
        view[: len(data)] = data
        return len(data)
