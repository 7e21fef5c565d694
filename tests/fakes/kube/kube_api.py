"""A Kubernetes API over real HTTP that answers from documents, and only what a Role allows.

Port-forward is the embedded cluster's own, and leads to `127.0.0.1` in place of a pod.
"""

import asyncio
import json
import threading
from dataclasses import dataclass, field

from aiohttp import web

from local.cluster.api import port_forward
from local.cluster.objects.selectors import Selector
from local.cluster.objects.status import ApiError
from tests.support.waiting import PATIENCE_S

NAMESPACE = "slipway-serving"
TOKEN = "jane"


@dataclass
class KubeApiServer:
    """The server and what it holds: objects by resource, and the rules of the person's Role. A context manager."""

    rules: list[dict]
    objects: dict[str, list[dict]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Verb and resource of each request."""
    token: str = TOKEN

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(PATIENCE_S)
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    @property
    def address(self):
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def kubeconfig(self, folder):
        document = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.address}}],
            "users": [{"name": "c", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(document))
        return folder / "kubeconfig"

    async def _start(self):
        app = web.Application()
        app.router.add_get("/{root:api/v1|apis/[^/]+/v1}/namespaces/{namespace}/{resource}", self._list)
        app.router.add_get("/{root:api/v1|apis/[^/]+/v1}/namespaces/{namespace}/{resource}/{name}", self._get)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}/portforward", self._forward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()

    async def _list(self, request):
        return self._answered(request, ["list"], lambda found: {"items": found})

    async def _get(self, request):
        return self._answered(
            request, ["get"], lambda found: next((o for o in found if _name(o) == request.match_info["name"]), None)
        )

    async def _forward(self, request):
        try:
            # from Kubernetes 1.35 on both: https://github.com/kubernetes/kubernetes/pull/134577
            self._check(request, ["get", "create"], "pods/portforward")
            pod = next(pod for pod in self.objects["pods"] if _name(pod) == request.match_info["name"])
            return await port_forward.answer(request, pod)
        except ApiError as error:
            return web.json_response(error.body(), status=error.code)

    def _answered(self, request, verbs, shape):
        resource = request.match_info["resource"]
        try:
            self._check(request, verbs, resource)
        except ApiError as error:
            return web.json_response(error.body(), status=error.code)
        selector = Selector(request.query.get("labelSelector", ""), "")
        body = shape([item for item in self.objects.get(resource, []) if selector.matches(item)])
        return web.json_response(body or {"kind": "Status", "code": 404}, status=200 if body else 404)

    def _check(self, request, verbs, resource):
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            raise ApiError(401, "Unauthorized", "Unauthorized")
        root = request.path.split("/")
        group = root[2] if root[1] == "apis" else ""
        for verb in verbs:
            self.asked.append((verb, resource))
            if request.match_info["namespace"] != NAMESPACE or not any(
                group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
                for rule in self.rules
            ):
                message = (
                    f'{resource} is forbidden: User "jane" cannot {verb} resource "{resource}" in API group "{group}"'
                )
                raise ApiError(403, "Forbidden", message)


def _name(item):
    return item["metadata"]["name"]
