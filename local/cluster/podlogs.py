"""`pods/<name>/log`: the CRI log of a container as the query asks for it."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from local.cluster import attempts
from local.cluster.attempts import Attempt
from local.cluster.resources import PODS, Object
from local.cluster.status import bad_request
from local.cluster.store import Store, key_of

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
        """Read them from the query.

        Raises:
            ApiError: 400, a value is no number or no time.
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
        """What the client reads of CRI `lines`."""
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
    """The container that a request without a name means.

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
    found: Object | None = next((container for container in containers if container["name"] == name), None)
    if found is None:
        raise bad_request(f"container {name} is not valid for pod {pod_name}")
    return found


class PodLogs:
    """Answers log requests from the folders of the pods."""

    def __init__(self, store: Store, state: Path) -> None:
        self._store, self._state = store, state

    async def answer(self, request: web.Request, pod: Object) -> web.StreamResponse:
        """Send the log; with `follow`, until the status says that the container ended.

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
            await self._send(response, pod, attempt, options)
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

    async def _send(self, response: web.StreamResponse, pod: Object, attempt: Attempt, options: Options) -> None:
        with attempt.log.open("rb") as log:
            lines = log.readlines()
            rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
            if options.tail_lines is not None:
                lines = lines[-options.tail_lines :] if options.tail_lines else []
            await response.write(options.text(lines)[: options.limit_bytes])
            while options.follow:
                over = self._recorded(pod, attempt)
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

    def _recorded(self, pod: Object, attempt: Attempt) -> bool:
        """Whether a client that now asks for the pod is told that the attempt ended.

        A client that sees the log end first takes the container for running, waits and reads the end again.
        """
        current = self._store.get(PODS, *key_of(pod))
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]:
            return True
        status = current["status"]
        found = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
        states = [one[kind].get("terminated", {}) for one in found for kind in ("state", "lastState")]
        return any(state.get("containerID") == attempt.identifier for state in states)


def _waiting_reason(pod: Object, name: str) -> str:
    status: dict[str, Any] = pod["status"]
    found = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    reasons = [one["state"].get("waiting", {}).get("reason") for one in found if one["name"] == name]
    return str(reasons[0]) if reasons and reasons[0] else "ContainerCreating"
