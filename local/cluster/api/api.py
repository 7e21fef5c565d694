"""The HTTP API: routes requests, authorizes them, and turns errors into Status objects."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from ..access import urls
from ..access.gate import Gate
from ..access.urls import Target
from ..node.podlogs import PodLogs
from ..objects import patches
from ..objects.resources import CLAIMS, PODS, SERVICE_ACCOUNTS, SERVICES, Object, Resource
from ..objects.selectors import Selector
from ..objects.status import ApiError, not_allowed
from ..objects.store import key_of
from ..rules import pod_security
from . import discovery, port_forward, tables
from .objects import Objects
from .request_bodies import check_fields, delete_options, is_dry_run, named, read_body
from .watching import Watch

HEALTH = ("/healthz", "/readyz", "/livez")
CHANGES = ("POST", "PUT", "PATCH")
HOLD_S = 0.6
BODY_BYTES = 8 << 20
RETURNED_WHEN_DELETED = (PODS, SERVICES, SERVICE_ACCOUNTS, CLAIMS)
SETTLED_REASONS = ("ContainerCreating", "PodInitializing")
log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Api:
    """Serves `objects`; `commands` are what its own paths do. Created pods have `hold_s` to start."""

    objects: Objects
    logs: PodLogs
    gate: Gate
    commands: Mapping[str, Callable[[], Awaitable[None]]]
    hold_s: float = HOLD_S
    _streams: set[asyncio.Task[Any]] = field(default_factory=set)

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        return app

    def end_streams(self) -> None:
        """End watches and followed logs, so that the server can stop."""
        for task in self._streams:
            task.cancel()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self.gate.admit(request)
            return await handler(request)
        except ApiError as error:
            return web.json_response(error.body(), status=error.code)
        except web.HTTPException as error:
            known = ApiError(error.status, error.reason.replace(" ", ""), error.text or error.reason)
            return web.json_response(known.body(), status=error.status)
        except Exception as error:
            log.exception("%s %s", request.method, request.path)
            body = ApiError(500, "InternalError", f"Internal error occurred: {error!r}").body()
            return web.json_response(body, status=500)

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        if path in HEALTH:
            return web.Response(text="ok")
        if path in self.commands and request.method == "POST":
            await self.commands[path]()
            return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        document = discovery.document(path)
        if document is not None:
            return web.json_response(document)
        return await self._resource(request, urls.target(urls.read(request.method, path, request.query)))

    async def _resource(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.part:
            return await self._subresource(request, target)
        if target.name:
            return await self._one(request, target)
        return await self._many(request, target)

    async def _many(self, request: web.Request, target: Target) -> web.StreamResponse:
        match request.method:
            case "GET" if urls.wants_watch(request.query):
                return await self._watch(request, target)
            case "GET":
                return self._list(request, target)
            case "POST":
                body = await read_body(request)
                check_fields(request, target.resource, body)
                created = self.objects.create(target.resource, target.namespace, body, dry_run=is_dry_run(request))
                if target.resource is PODS and not is_dry_run(request):
                    created = await self._hold(created)
                return self._answer(request, target.resource, created, status=201)
            case "DELETE":
                return await self._delete_many(request, target)
            case method:
                raise not_allowed(f"the server does not allow {method} on {target.resource.plural}")

    async def _one(self, request: web.Request, target: Target) -> web.StreamResponse:
        resource, namespace, name = target.resource, target.namespace, target.name
        match request.method:
            case "GET":
                return self._answer(request, resource, self.objects.store.need(resource, namespace, name))
            case "PUT":
                body = named(await read_body(request), name)
                check_fields(request, resource, body)
                return self._answer(
                    request, resource, self.objects.update(resource, namespace, body, dry_run=is_dry_run(request))
                )
            case "PATCH":
                return await self._patch(request, target)
            case "DELETE":
                options = await delete_options(request)
                item = self.objects.store.need(resource, namespace, name)
                return web.json_response(_deleted(resource, self.objects.delete(resource, item, options)))
            case method:
                raise not_allowed(f"the server does not allow {method} on {resource.plural}")

    async def _subresource(self, request: web.Request, target: Target) -> web.StreamResponse:
        resource, part = target.resource, target.part
        item = self.objects.store.need(resource, target.namespace, target.name)
        if resource is PODS and part == "log" and request.method == "GET":
            return await self._streamed(self.logs.answer(request, item))
        if resource is PODS and part == "portforward":
            return await self._streamed(port_forward.answer(request, item))
        if resource is PODS and part in ("exec", "attach", "proxy"):
            raise not_allowed(f"this cluster runs pods as local processes and offers no {part}")
        if resource is SERVICE_ACCOUNTS and part == "token" and request.method == "POST":
            return web.json_response(self.gate.tokens.answer(item, await read_body(request)), status=201)
        if part == "scale" and resource.has_scale:
            return await self._scale(request, target, item)
        if part != "status" or not resource.has_status:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return await self._status(request, target, item)

    async def _status(self, request: web.Request, target: Target, item: Object) -> web.StreamResponse:
        resource, part = target.resource, target.part
        match request.method:
            case "GET":
                return self._answer(request, resource, item)
            case "PUT":
                body = named(await read_body(request), target.name)
                return self._answer(request, resource, self.objects.update(resource, target.namespace, body, part=part))
            case "PATCH":
                return await self._patch(request, target)
            case method:
                raise not_allowed(f"the server does not allow {method} on {resource.plural}/status")

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await read_body(request, any_shape=request.content_type == patches.JSON)
        if request.content_type != patches.JSON:
            check_fields(request, target.resource, body)
        if self.objects.store.get(target.resource, target.namespace, target.name) is None:
            self.gate.require(request, "create")  # server-side apply creates a missing object
        item, created = self.objects.patch(
            target.resource,
            target.namespace,
            target.name,
            request.content_type,
            body,
            part=target.part,
            dry_run=is_dry_run(request),
        )
        return self._answer(request, target.resource, item, status=201 if created else 200)

    async def _scale(self, request: web.Request, target: Target, item: Object) -> web.StreamResponse:
        if request.method in ("PUT", "PATCH"):
            body = await read_body(request, any_shape=request.content_type == patches.JSON)
            if request.method == "PATCH":
                body = patches.apply(request.content_type, _scale_of(item), body)
            replicas = (body.get("spec") or {}).get("replicas", 0)
            new = item | {"spec": item["spec"] | {"replicas": replicas}}
            if version := (body.get("metadata") or {}).get("resourceVersion"):
                new["metadata"] = item["metadata"] | {"resourceVersion": version}
            item = self.objects.update(target.resource, target.namespace, new, dry_run=is_dry_run(request))
        elif request.method != "GET":
            raise not_allowed(f"the server does not allow {request.method} on a scale")
        return web.json_response(_scale_of(item))

    async def _delete_many(self, request: web.Request, target: Target) -> web.StreamResponse:
        options = await delete_options(request)
        items = self._selected(request, target)
        for item in items:
            if self.objects.store.get(target.resource, *key_of(item)) is not None:
                self.objects.delete(target.resource, item, options)
        return web.json_response(self._list_of(target.resource, items))

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        query = dict(request.query)
        if target.name:
            query["fieldSelector"] = f"metadata.name={target.name}"
        include = request.query.get("includeObject", "Metadata")

        def shape(item: Object) -> Object:
            if tables.MEDIA_TYPE not in request.headers.get("Accept", ""):
                return item
            version = item["metadata"]["resourceVersion"]
            return tables.table(target.resource, [item], version, include=include)

        watch = Watch(self.objects.store, target.resource, target.namespace, query, shape)
        return await self._streamed(watch.answer(request))

    async def _streamed(self, answer: Awaitable[web.StreamResponse]) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            return await answer
        finally:
            self._streams.discard(task)

    async def _hold(self, pod: Object) -> Object:
        """Wait a moment for the pod to start, so that clients that poll every few seconds need not poll at all."""
        key, deadline = key_of(pod), asyncio.get_running_loop().time() + self.hold_s
        with self.objects.store.bell() as bell:
            while not _settled(pod) and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
                bell.clear()
                try:
                    await asyncio.wait_for(bell.wait(), left_s)
                except TimeoutError:
                    break
                pod = self.objects.store.get(PODS, *key) or pod
        return pod

    def _list(self, request: web.Request, target: Target) -> web.StreamResponse:
        items = self._selected(request, target)
        if tables.MEDIA_TYPE in request.headers.get("Accept", ""):
            include = request.query.get("includeObject", "Metadata")
            version = str(self.objects.store.version)
            return web.json_response(tables.table(target.resource, items, version, include=include))
        return web.json_response(self._list_of(target.resource, items))

    def _selected(self, request: web.Request, target: Target) -> list[Object]:
        selector = Selector(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
        return [item for item in self.objects.store.all(target.resource, target.namespace) if selector.matches(item)]

    def _list_of(self, resource: Resource, items: list[Object]) -> dict[str, Any]:
        meta = {"resourceVersion": str(self.objects.store.version)}
        return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta, "items": items}

    def _answer(self, request: web.Request, resource: Resource, item: Object, status: int = 200) -> web.Response:
        headers = {}
        if request.method in CHANGES and (warning := pod_security.warning(self.objects.store, resource, item)):
            headers["Warning"] = f"299 - {json.dumps(warning)}"
        if tables.MEDIA_TYPE in request.headers.get("Accept", ""):
            version, include = (
                item["metadata"].get("resourceVersion", ""),
                request.query.get("includeObject", "Metadata"),
            )
            table = tables.table(resource, [item], version, include=include)
            return web.json_response(table, status=status, headers=headers)
        return web.json_response(item, status=status, headers=headers)


def _deleted(resource: Resource, item: Object) -> dict[str, Any]:
    if resource in RETURNED_WHEN_DELETED:
        return item
    meta = item["metadata"]
    details = {"name": meta["name"], "group": resource.group, "kind": resource.plural, "uid": meta["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _scale_of(item: Object) -> dict[str, Any]:
    meta = item["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
    labels = item["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    status = {"replicas": (item.get("status") or {}).get("replicas", 0), "selector": selector}
    spec = {"replicas": item["spec"]["replicas"]}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status}


def _settled(pod: Object) -> bool:
    status = pod["status"]
    if status.get("phase") != "Pending":
        return True
    statuses = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    reasons = [one["state"].get("waiting", {}).get("reason") for one in statuses]
    return any(reason and reason not in SETTLED_REASONS for reason in reasons)
