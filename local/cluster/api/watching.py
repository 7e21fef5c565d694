"""WATCH: a stream of changes, one JSON document a line."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping

from aiohttp import web

from ..objects.resources import Object, Resource
from ..objects.selectors import Selector
from ..objects.status import ApiError, bad_request
from ..objects.store import Change, Store

BOOKMARK_S = 60.0
LONGEST_S = 3600.0
Shape = Callable[[Object], Object]


class Watch:
    """One client's watch of one kind."""

    def __init__(
        self, store: Store, resource: Resource, namespace: str, query: Mapping[str, str], shape: Shape
    ) -> None:
        """`shape` turns an object into what the client requested: the object, or a Table of it.

        Raises:
            ApiError: 400, a parameter cannot be parsed.
        """
        self._store, self._resource, self._namespace, self._shape = store, resource, namespace, shape
        self._selector = Selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1", "True")
        self._initial = query.get("sendInitialEvents") in ("true", "1", "True")
        given = query.get("resourceVersion") or "0"
        if not given.isdigit():
            raise bad_request(f"Invalid value: {given!r}: resourceVersion must be a number")
        self._replay = given == "0" or self._initial
        self._version = store.version if self._replay else int(given)
        self._ends = time.monotonic() + float(query.get("timeoutSeconds") or LONGEST_S)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send the current objects if requested, then every change until the time-out or until the client leaves."""
        self._store.since(self._resource, self._version)  # until something is sent, a 410 can be a plain response
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await self._send_all(response)
            await response.write_eof()
        return response

    async def _send_all(self, response: web.StreamResponse) -> None:
        if self._replay:
            items = [item for item in self._store.all(self._resource, self._namespace) if self._selector.matches(item)]
            self._version = self._store.version
            await _send(response, (("ADDED", self._shape(item)) for item in items))
            if self._initial:
                await _send(response, [("BOOKMARK", self._bookmark({"k8s.io/initial-events-end": "true"}))])
        with self._store.bell() as bell:
            while (left_s := self._ends - time.monotonic()) > 0:
                bell.clear()
                try:
                    changes = self._store.since(self._resource, self._version)
                except ApiError as error:
                    await _send(response, [("ERROR", error.body())])
                    return
                await _send(response, self._seen(changes))
                if changes:
                    self._version = changes[-1].version
                try:
                    await asyncio.wait_for(bell.wait(), min(left_s, BOOKMARK_S))
                except TimeoutError:
                    # what was written while the loop was held up is not behind the bookmark
                    if self._bookmarks and not bell.is_set():
                        self._version = self._store.version
                        await _send(response, [("BOOKMARK", self._bookmark({}))])

    def _seen(self, changes: Iterable[Change]) -> Iterable[tuple[str, Object]]:
        for change in changes:
            if self._namespace and change.object["metadata"].get("namespace") != self._namespace:
                continue
            before, after = self._selector.matches(change.old), self._selector.matches(change.new)
            if after and change.new is not None:
                yield "MODIFIED" if before else "ADDED", self._shape(change.new)
            elif before and change.old is not None:
                # An object that the selector no longer matches is deleted as far as this client can tell.
                version = {"resourceVersion": str(change.version)}
                last = change.old | {"metadata": change.old["metadata"] | version}
                yield "DELETED", self._shape(last)

    def _bookmark(self, annotations: dict[str, str]) -> Object:
        meta = {"resourceVersion": str(self._version), "creationTimestamp": None, "annotations": annotations}
        return {"apiVersion": self._resource.api_version, "kind": self._resource.kind, "metadata": meta}


async def _send(response: web.StreamResponse, events: Iterable[tuple[str, Object]]) -> None:
    lines = [json.dumps({"type": kind, "object": item}) for kind, item in events]
    if lines:
        await response.write(("\n".join(lines) + "\n").encode())
