"""The HTTP side: which URL does what, who may ask, and how errors look."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import yaml
from aiohttp import web

from local.cluster import discovery, patches, tables
from local.cluster.access import Access
from local.cluster.objects import Objects
from local.cluster.podlogs import PodLogs
from local.cluster.resources import CLAIMS, NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES, Object, Resource, find
from local.cluster.schema import refuse_unknown_fields
from local.cluster.selectors import Selector
from local.cluster.status import ApiError, bad_request, not_allowed
from local.cluster.store import key_of
from local.cluster.watching import Watch

HEALTH = ("/healthz", "/readyz", "/livez")
OPEN_PATHS = (*HEALTH, "/version")
HOLD_S = 0.6
BODY_BYTES = 8 << 20
RETURNED_WHEN_DELETED = (PODS, SERVICES, SERVICE_ACCOUNTS, CLAIMS)
SETTLED_REASONS = ("ContainerCreating", "PodInitializing")
FIXED_DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "/version": discovery.version,
    "/api": discovery.core_versions,
    "/apis": discovery.groups,
    "/openapi/v3": discovery.openapi_paths,
    "/openapi/v2": discovery.openapi_v2,
}
log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Target:
    """What a URL names."""

    resource: Resource
    namespace: str
    name: str = ""
    part: str = ""


@dataclass
class Api:
    """Serves `objects`; `stop` ends every pod and then the server."""

    objects: Objects
    logs: PodLogs
    access: Access
    stop: Callable[[], None]
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
            self._check_token(request)
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

    def _check_token(self, request: web.Request) -> None:
        if request.path not in OPEN_PATHS and not self.access.allows(request.headers.get("Authorization", "")):
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        if path in HEALTH:
            return web.Response(text="ok")
        if path == "/slipway/stop" and request.method == "POST":
            self.stop()
            return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        document = _document(path)
        if document is not None:
            return web.json_response(document)
        target = _target(path)
        if target.part:
            return await self._subresource(request, target)
        if target.name:
            return await self._one(request, target)
        return await self._many(request, target)

    async def _many(self, request: web.Request, target: Target) -> web.StreamResponse:
        match request.method:
            case "GET" if request.query.get("watch") in ("true", "1", "True"):
                return await self._watch(request, target)
            case "GET":
                return self._list(request, target)
            case "POST":
                body = await _body(request)
                _check_fields(request, target.resource, body)
                created = self.objects.create(target.resource, target.namespace, body, dry_run=_dry(request))
                if target.resource is PODS and not _dry(request):
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
                body = _named(await _body(request), name)
                _check_fields(request, resource, body)
                return self._answer(
                    request, resource, self.objects.update(resource, namespace, body, dry_run=_dry(request))
                )
            case "PATCH":
                return await self._patch(request, target)
            case "DELETE":
                options = await _delete_options(request)
                item = self.objects.store.need(resource, namespace, name)
                return web.json_response(_deleted(resource, self.objects.delete(resource, item, options)))
            case method:
                raise not_allowed(f"the server does not allow {method} on {resource.plural}")

    async def _subresource(self, request: web.Request, target: Target) -> web.StreamResponse:
        resource, part = target.resource, target.part
        item = self.objects.store.need(resource, target.namespace, target.name)
        if resource is PODS and part == "log" and request.method == "GET":
            return await self._streamed(self.logs.answer(request, item))
        if resource is PODS and part in ("exec", "attach", "portforward", "proxy"):
            raise not_allowed(f"this cluster runs pods as local processes and offers no {part}")
        if part == "scale" and resource.has_scale:
            return await self._scale(request, target, item)
        if part != "status" or not resource.has_status:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        match request.method:
            case "GET":
                return self._answer(request, resource, item)
            case "PUT":
                body = _named(await _body(request), target.name)
                return self._answer(request, resource, self.objects.update(resource, target.namespace, body, part=part))
            case "PATCH":
                return await self._patch(request, target)
            case method:
                raise not_allowed(f"the server does not allow {method} on {resource.plural}/status")

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await _body(request, any_shape=request.content_type == patches.JSON)
        if request.content_type != patches.JSON:
            _check_fields(request, target.resource, body)
        item, created = self.objects.patch(
            target.resource,
            target.namespace,
            target.name,
            request.content_type,
            body,
            part=target.part,
            dry_run=_dry(request),
        )
        return self._answer(request, target.resource, item, status=201 if created else 200)

    async def _scale(self, request: web.Request, target: Target, item: Object) -> web.StreamResponse:
        if request.method in ("PUT", "PATCH"):
            body = await _body(request, any_shape=request.content_type == patches.JSON)
            if request.method == "PATCH":
                body = patches.apply(request.content_type, _scale_of(item), body)
            replicas = (body.get("spec") or {}).get("replicas", 0)
            new = item | {"spec": item["spec"] | {"replicas": replicas}}
            if version := (body.get("metadata") or {}).get("resourceVersion"):
                new["metadata"] = item["metadata"] | {"resourceVersion": version}
            item = self.objects.update(target.resource, target.namespace, new, dry_run=_dry(request))
        elif request.method != "GET":
            raise not_allowed(f"the server does not allow {request.method} on a scale")
        return web.json_response(_scale_of(item))

    async def _delete_many(self, request: web.Request, target: Target) -> web.StreamResponse:
        options = await _delete_options(request)
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
        """Wait a moment for the pod to start: clients that poll every few seconds then need not poll at all."""
        key, deadline = key_of(pod), asyncio.get_running_loop().time() + HOLD_S
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
        if tables.MEDIA_TYPE in request.headers.get("Accept", ""):
            version, include = (
                item["metadata"].get("resourceVersion", ""),
                request.query.get("includeObject", "Metadata"),
            )
            return web.json_response(tables.table(resource, [item], version, include=include), status=status)
        return web.json_response(item, status=status)


def _document(path: str) -> dict[str, Any] | None:
    """The fixed documents; None when the path is not one of theirs."""
    parts = path.strip("/").split("/")
    match parts:
        case ["apis", name]:
            return discovery.group(name)
        case ["api", _] | ["apis", _, _]:
            return discovery.resources("/".join(parts))
        case ["openapi", "v3", *rest] if rest:
            return discovery.openapi("/".join(rest))
        case _:
            fixed = FIXED_DOCUMENTS.get(path)
            return fixed() if fixed else None


def _target(path: str) -> Target:
    parts = path.strip("/").split("/")
    head = 3 if parts[0] == "apis" else 2
    root, rest = "/".join(parts[:head]), parts[head:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and find(root, rest[2]):  # noqa: PLR2004 - namespaces/<name>/<plural>
        namespace, rest = rest[1], rest[2:]
    resource = find(root, rest[0]) if rest else None
    name, part = [*rest[1:], "", ""][:2]
    if resource is None or len(rest) > 3 or (resource.namespaced and name and not namespace):  # noqa: PLR2004
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    if resource is NAMESPACES:
        namespace = ""
    return Target(resource, namespace, name, part)


async def _body(request: web.Request, *, any_shape: bool = False) -> Any:
    text = await request.text()
    try:
        body = yaml.safe_load(text) if "yaml" in request.content_type else json.loads(text)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from error
    if not isinstance(body, dict) and not any_shape:
        raise bad_request("the body of the request is no object")
    return body


async def _delete_options(request: web.Request) -> dict[str, Any]:
    options: dict[str, Any] = await _body(request) if request.can_read_body and await request.text() else {}
    query = request.query
    if "gracePeriodSeconds" in query:
        options["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    if _dry(request):
        options["dryRun"] = ["All"]
    return options


def _check_fields(request: web.Request, resource: Resource, body: Any) -> None:
    if request.query.get("fieldValidation") == "Strict":
        refuse_unknown_fields(resource, body)


def _named(body: Object, name: str) -> Object:
    given = (body.get("metadata") or {}).get("name", name)
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    return body | {"metadata": (body.get("metadata") or {}) | {"name": name}}


def _dry(request: web.Request) -> bool:
    return request.query.get("dryRun") == "All"


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
    found = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    reasons = [one["state"].get("waiting", {}).get("reason") for one in found]
    return any(reason and reason not in SETTLED_REASONS for reason in reasons)
