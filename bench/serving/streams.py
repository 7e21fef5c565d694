"""Clients that read streams of server-sent events over kept HTTP connections, at little cost of their own.

One thread reads every socket and looks at bytes, not at documents, because the clients share the machine with what they
measure. A document is parsed only where an answer ends.
"""

import json
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 120.0
END_OF_BODY, END_OF_EVENT, EVENT = b"\r\n0\r\n\r\n", b"\n\n", b"data: "
DONE = b"[DONE]"


@dataclass(frozen=True)
class Route:
    """One way to ask for a stream."""

    host: str
    port: int
    path: str
    body: dict[str, Any]

    def request(self) -> bytes:
        """The request as it is sent."""
        body = json.dumps(self.body).encode()
        head = f"POST {self.path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Round:
    """What the clients of one round saw.

    Attributes:
        latencies_ms: time to the last byte of each answer, in milliseconds.
        tokens: number of tokens of all answers, by the counts that the server sends.
        seconds: from the first request to the last byte.
        first_ms: time to the first text of each answer, in milliseconds.
        gaps_ms: times between reads that had an event, in milliseconds.
    """

    tokens: int = 0
    seconds: float = 0.0
    first_ms: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


class _Client:
    """Asks over one connection, one answer after the other."""

    def __init__(self, route: Route, answers: int, into: Round) -> None:
        self._request, self._left, self._round = route.request(), answers, into
        self.socket = socket.create_connection((route.host, route.port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data, self._asked_at, self._read_at, self._spoke = b"", 0.0, 0.0, False

    def ask(self) -> None:
        """Send the next request."""
        self._data, self._spoke = b"", False
        self._asked_at = time.perf_counter()
        self.socket.sendall(self._request)

    def read(self) -> bool:
        """Take what has arrived; False once the last answer has ended."""
        data, now = self.socket.recv(1 << 18), time.perf_counter()
        if not data:
            raise SystemExit(f"the server closed the connection after {self._data[-300:]!r}")
        self._data += data
        if not self._data.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not an answer: {self._data[:300]!r}")
        if END_OF_EVENT in data:
            self._time(now)
        if not self._data.endswith(END_OF_BODY):
            return True
        self._round.tokens += _tokens(self._data)
        self._round.latencies_ms.append((now - self._asked_at) * 1000)
        self._left -= 1
        if self._left:
            self.ask()
        return bool(self._left)

    def _time(self, now: float) -> None:
        if self._spoke:
            self._round.gaps_ms.append((now - self._read_at) * 1000)
        elif _has_text(self._data):
            self._spoke = True
            self._round.first_ms.append((now - self._asked_at) * 1000)
        self._read_at = now


def play(route: Route, *, clients: int, answers: int, spread_s: float = 0.0) -> Round:
    """Ask `answers` times over each of `clients` connections, which begin evenly spread over `spread_s` seconds."""
    return play_all([route] * clients, answers=answers, spread_s=spread_s)


def play_all(routes: Sequence[Route], *, answers: int, spread_s: float = 0.0) -> Round:
    """The same with a connection for each of `routes`."""
    result, clients = Round(), len(routes)
    waiting = [_Client(route, answers, result) for route in routes]
    began = time.perf_counter()
    starts = [began + spread_s * number / clients for number in range(clients)]
    reading = 0
    with selectors.DefaultSelector() as selector:
        while waiting or reading:
            now = time.perf_counter()
            while waiting and starts[-len(waiting)] <= now:
                client = waiting.pop(0)
                selector.register(client.socket, selectors.EVENT_READ, client)
                client.ask()
                reading += 1
            pause = max(0.0, starts[-len(waiting)] - time.perf_counter()) if waiting else TIMEOUT_S
            ready = selector.select(pause)
            if not ready and not waiting:
                raise SystemExit(f"{routes[0].path} sent nothing for {TIMEOUT_S:.0f} s")
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fileobj)
                    key.data.socket.close()
                    reading -= 1
    result.seconds = time.perf_counter() - began
    return result


def _events(data: bytes) -> Sequence[bytes]:
    """The events of an answer. Each is within one chunk, or several in one."""
    return [line[len(EVENT) :] for line in data.splitlines() if line.startswith(EVENT)]


def _has_text(data: bytes) -> bool:
    """Whether an event has a part of the answer: not the one that only says who speaks."""
    return any(_text(json.loads(event)) for event in _events(data) if event != DONE and event.endswith(b"}"))


def _text(document: dict[str, Any]) -> str:
    if "text_output" in document:
        return str(document["text_output"])
    return "".join(choice.get("delta", {}).get("content") or "" for choice in document.get("choices", ()))


def _tokens(data: bytes) -> int:
    """The number of tokens by the last document of an answer.

    Raises:
        SystemExit: the answer has no end.
    """
    events = [event for event in _events(data) if event != DONE]
    last = json.loads(events[-1]) if events else {}
    counts = last.get("usage") or last
    if "completion_tokens" not in counts:
        raise SystemExit(f"an answer ended with {data[-300:]!r}")
    return int(counts["completion_tokens"])
