"""`pods/<name>/log`: the CRI log of a container, shaped by the query."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from ..objects.resources import Object
from ..objects.status import bad_request
from ..objects.store import Store
from . import attempts
from .attempts import Attempt

FOLLOW_S = 0.05
CHUNK_BYTES = 1 << 16
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True)
class Options:
    """PodLogOptions."""

    follow: bool
    timestamps: bool
    since: datetime | None
    tail_lines: int | None
    limit_bytes: int | None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Options":
        """Parse the query.

        Raises:
            ApiError: 400, a value is not a number or not a time.
        """

        def flag(name: str) -> bool:
            return query.get(name, "").lower() in ("true", "1")

        def number(name: str) -> int | None:
            return int(query[name]) if query.get(name) else None

        try:
            since = datetime.fromisoformat(query["sinceTime"]) if query.get("sinceTime") else None
            seconds = number("sinceSeconds")
            if seconds is not None:
                since = datetime.now(UTC) - timedelta(seconds=seconds)
            return cls(flag("follow"), flag("timestamps"), since, number("tailLines"), number("limitBytes"))
        except ValueError as error:
            raise bad_request(f"cannot understand the log options: {error}") from error

    def text(self, lines: list[bytes]) -> bytes:
        """The part of the CRI `lines` that the client gets."""
        return b"".join(self._texts(lines))

    def _texts(self, lines: list[bytes]) -> Iterator[bytes]:
        fresh = True
        for line in lines:
            stamp, _, tag, text = [*line.rstrip(b"\n").split(b" ", 3), b"", b""][:4]
            if self.since is not None and datetime.fromisoformat(stamp.decode()) < self.since:
                continue
            end = b"\n" if tag == b"F" else b""
            yield (stamp + b" " if self.timestamps and fresh else b"") + text + end
            fresh = tag == b"F"


def choose_container(pod: Object, name: str | None) -> Object:
    """The container called `name`; without a name, the only or default one.

    Raises:
        ApiError: 400, there is none of that name, or several to choose from.
    """
    spec, pod_name = pod["spec"], pod["metadata"]["name"]
    containers = [*spec["containers"], *(spec.get("initContainers") or [])]
    names = [container["name"] for container in spec["containers"]]
    name = name or (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER)
    if not name and len(names) == 1:
        name = names[0]
    if not name:
        listed = " ".join(names)
        raise bad_request(f"a container name must be specified for pod {pod_name}, choose one of: [{listed}]")
    chosen: Object | None = next((container for container in containers if container["name"] == name), None)
    if chosen is None:
        raise bad_request(f"container {name} is not valid for pod {pod_name}")
    return chosen


class PodLogs:
    """Answers log requests from the folders of the pods."""

    def __init__(self, store: Store, state: Path) -> None:
        self._store, self._state = store, state

    async def answer(self, request: web.Request, pod: Object) -> web.StreamResponse:
        """Send the log; with `follow`, until the container has ended. Its status changes a moment later.

        Raises:
            ApiError: 400, there is no such container or it has not started yet.
        """
        query = request.query
        container = choose_container(pod, query.get("container"))
        options = Options.of(query)
        attempt = self._attempt(pod, container, previous=query.get("previous") == "true")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            if not attempt.log.exists():  # the pod was evicted; the kubelet reports this in the body, after a 200
                await response.write(f"unable to retrieve container logs for {attempt.identifier}".encode())
            else:
                await self._send(response, attempt, options)
            await response.write_eof()
        return response

    def _attempt(self, pod: Object, container: Object, *, previous: bool) -> Attempt:
        folder = self._state / "pods" / pod["metadata"]["uid"] / "containers" / container["name"]
        attempt = attempts.latest(folder)
        name, pod_name = container["name"], pod["metadata"]["name"]
        if attempt is None:
            reason = _waiting_reason(pod, name)
            raise bad_request(f'container "{name}" in pod "{pod_name}" is waiting to start: {reason}')
        if not previous:
            return attempt
        before = attempts.find(folder, attempt.number - 1)
        if before is None:
            raise bad_request(f'previous terminated container "{name}" in pod "{pod_name}" not found')
        return before

    async def _send(self, response: web.StreamResponse, attempt: Attempt, options: Options) -> None:
        with attempt.log.open("rb") as log:
            lines = log.readlines()
            rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
            if options.tail_lines is not None:
                lines = lines[-options.tail_lines :] if options.tail_lines else []
            await response.write(options.text(lines)[: options.limit_bytes])
            while options.follow:
                over = attempt.ended() is not None
                data = log.read(CHUNK_BYTES)
                if data:
                    *whole, rest = (rest + data).splitlines(keepends=True)
                    if rest.endswith(b"\n"):
                        whole, rest = [*whole, rest], b""
                    await response.write(options.text(whole))
                elif over:
                    return
                else:
                    await asyncio.sleep(FOLLOW_S)


def _waiting_reason(pod: Object, name: str) -> str:
    status: dict[str, Any] = pod["status"]
    statuses = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    reasons = [one["state"].get("waiting", {}).get("reason") for one in statuses if one["name"] == name]
    return str(reasons[0]) if reasons and reasons[0] else "ContainerCreating"
