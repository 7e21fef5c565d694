"""`pods/<name>/portforward` over WebSocket, with the `v4.channel.k8s.io` framing that the kubelet uses.

Each forwarded port has two channels: 2n carries data both ways, 2n+1 carries one error text to the client. Every
message is binary and begins with the number of its channel; the first message on each channel is the port, as two
little-endian bytes. A port is connected once, when the request begins, and the WebSocket ends when every port's
connection has ended: k8s.io/kubelet 1.36, pkg/cri/streaming/portforward/websocket.go.

kubectl tunnels SPDY/3.1 through the WebSocket instead, which is refused here.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import WSMsgType, web

from ..objects.resources import Object
from ..objects.status import ApiError, bad_request

PROTOCOL = "v4.channel.k8s.io"
PORTS_LIMIT = 65536
CHUNK_BYTES = 32 * 1024
MESSAGE_BYTES = 32 << 20
CONNECT_TIMEOUT_S = 5.0


@dataclass
class Channel:
    """One port's pair of channels on the client's WebSocket."""

    socket: web.WebSocketResponse
    data: int
    port: int

    async def open(self) -> None:
        """Send the port that both channels belong to on each of them."""
        for channel in (self.data, self.data + 1):
            await self.send(self.port.to_bytes(2, "little"), channel)

    async def send(self, data: bytes, channel: int | None = None) -> None:
        """Send data from the pod; if the client is gone, the reader of its messages notices."""
        with contextlib.suppress(ConnectionError):
            await self.socket.send_bytes(bytes((self.data if channel is None else channel,)) + data)

    async def fail(self, text: str) -> None:
        """Send the one error text."""
        await self.send(text.encode(), self.data + 1)


async def answer(request: web.Request, pod: Object) -> web.StreamResponse:
    """Forward the ports that the query names until the connections or the client end.

    Raises:
        ApiError: 400, the request is not a WebSocket upgrade, names no port, or offers no supported protocol.
    """
    if "websocket" not in request.headers.get("Upgrade", "").lower():
        raise _refused_upgrade(request)
    ports = _ports(request.query.getall("ports", []))
    offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if name.strip()]
    if offered and PROTOCOL not in offered:
        raise bad_request(
            f"unable to upgrade: no protocol in common: this cluster forwards ports with {PROTOCOL}, and "
            f"{', '.join(offered)} was offered"
        )
    if pod["status"].get("phase") != "Running":
        # the kubelet looks only among running pods, and the API server passes on the text of its answer
        meta = pod["metadata"]
        return web.Response(status=500, text=f'pod not found ("{meta["name"]}_{meta["namespace"]}")\n')
    socket = web.WebSocketResponse(
        protocols=(PROTOCOL,) if offered else (), compress=False, max_msg_size=MESSAGE_BYTES, autoping=True
    )
    await socket.prepare(request)
    await _forward(socket, pod, ports)
    return socket


async def _forward(socket: web.WebSocketResponse, pod: Object, ports: list[int]) -> None:
    channels = [Channel(socket, 2 * index, port) for index, port in enumerate(ports)]
    for channel in channels:
        await channel.open()
    inputs: dict[int, asyncio.Queue[bytes]] = {channel.data: asyncio.Queue(maxsize=16) for channel in channels}
    reading = asyncio.create_task(_distribute(socket, inputs))
    joined = asyncio.gather(*(_join(channel, pod, inputs[channel.data]) for channel in channels))
    try:
        await asyncio.wait((reading, joined), return_when=asyncio.FIRST_COMPLETED)
    finally:
        reading.cancel()
        joined.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await joined
        await socket.close()


async def _distribute(socket: web.WebSocketResponse, inputs: Mapping[int, asyncio.Queue[bytes]]) -> None:
    """Pass each message of the client to its port, until the client disconnects or breaks the framing."""
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data or message.data[0] not in inputs:
            return
        await inputs[message.data[0]].put(message.data[1:])


async def _join(channel: Channel, pod: Object, input_: asyncio.Queue[bytes]) -> None:
    """Connect the client to a port of the pod, until the pod closes the connection."""
    address, identifier = pod["status"]["podIP"], pod["metadata"]["uid"]
    try:
        # a pod's own address is its loopback here: kubelet connects to localhost inside the pod's network namespace
        connecting = asyncio.open_connection(address, channel.port)
        reader, writer = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
    except OSError as error:
        reason = "connection refused" if isinstance(error, ConnectionRefusedError) else str(error) or "i/o timeout"
        await channel.fail(
            f"error forwarding port {channel.port} to pod {identifier}, uid : failed to execute portforward in network "
            f'namespace "{identifier}": failed to connect to localhost:{channel.port} inside namespace '
            f'"{identifier}", IPv4: dial tcp4 {address}:{channel.port}: connect: {reason}'
        )
        return
    sending = asyncio.create_task(_send_on(input_, writer))
    try:
        while data := await reader.read(CHUNK_BYTES):
            await channel.send(data)
    except ConnectionError:
        pass
    finally:
        sending.cancel()
        writer.close()


async def _send_on(input_: asyncio.Queue[bytes], writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(await input_.get())
            await writer.drain()


def _refused_upgrade(request: web.Request) -> ApiError:
    if "spdy" in request.headers.get("Upgrade", "").lower():
        return bad_request(
            f"this cluster forwards ports over WebSocket with {PROTOCOL} and does not speak SPDY, which kubectl needs. "
            "Connect to the pod's own address instead: on this machine every pod has one (kubectl get pods -o wide)"
        )
    return bad_request("Upgrade request required")


def _ports(texts: list[str]) -> list[int]:
    """The ports of a query.

    Raises:
        ApiError: 400, there is none, or one is not a port.
    """
    if not texts:
        raise bad_request('query parameter "port" is required')
    ports = []
    for text in (part for listed in texts for part in listed.split(",")):
        if not text.isdecimal() or not 0 < int(text) < PORTS_LIMIT:
            raise bad_request(f'unable to parse "{text}" as a port: expected a number from 1 to {PORTS_LIMIT - 1}')
        ports.append(int(text))
    return ports
