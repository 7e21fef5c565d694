"""A Kubernetes API that knows pods, their events, and leases, for tests of the step operator: real client, real HTTP, scripted pods.

`script` is called with each pod as it is created and says how it ends. Everything asked of the server is in `asked`.
"""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

LEASE = re.compile(r"^/apis/coordination.k8s.io/v1/namespaces/[^/]+/leases(/(?P<name>[^/]+))?$")
EVENTS = re.compile(r"^/api/v1/namespaces/[^/]+/events$")
PODS = re.compile(r"^/api/v1/namespaces/(?P<namespace>[^/]+)/pods(/(?P<name>[^/]+)(?P<log>/log)?)?$")


@dataclass(frozen=True)
class PodEnd:
    """How the container of a pod ends; phase Pending or Running: it does not."""

    exit_code: int = 0
    message: str = ""
    reason: str = ""
    phase: str | None = None
    status: dict[str, Any] | None = None
    """The pod's whole status, as a real cluster recorded it."""
    gone: bool = False
    """The pod vanishes at once."""


@dataclass
class PodServer:
    """The server and what it holds. Use as a context manager."""

    script: Callable[[dict[str, Any]], PodEnd] = lambda _: PodEnd()
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    created: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    leases: dict[str, dict[str, Any]] = field(default_factory=dict)
    during_log: Callable[[], None] = lambda: None
    """What happens while a pod's log is read."""
    unread_logs: int = 0
    """How often a pod's log cannot be read, because its node does not answer."""
    during_unread_log: Callable[[], None] = lambda: None
    """What happens while a pod's log cannot be read."""
    during_watch: Callable[[dict[str, Any]], None] = lambda _: None
    """What happens to a pod while it is watched; then the watch reports it and ends, as one whose time is up."""
    watch_refusal: str = ""
    """Why no pod may be watched."""
    refusal: str = ""
    """Why no pod may be created."""
    ahead: timedelta = timedelta(0)
    """How far the server's clock is ahead of ours."""
    lingering: set[str] = field(default_factory=set)
    """Pods that do not go away when they are deleted, as on a node that does not answer."""

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def write_kubeconfig(self, path: Path) -> None:
        """A kubeconfig that names this server."""
        address = f"http://127.0.0.1:{self._server.server_address[1]}"
        names = {"context": {"cluster": "fake", "user": "fake"}, "name": "fake"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": address}}],
            "users": [{"name": "fake", "user": {}}],
            "contexts": [names],
            "current-context": "fake",
        }
        path.write_text(yaml.safe_dump(config))

    def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Store a pod and let the script decide its end."""
        began = datetime.now(UTC)
        pod["metadata"] |= {"uid": f"uid-{len(self.created)}", "creationTimestamp": _stamp(began)}
        self.created.append(json.loads(json.dumps(pod)))
        end = self.script(pod)
        pod["status"] = end.status or status(end, began)
        if not end.gone:
            self.pods[pod["metadata"]["name"]] = pod
        return pod

    def selected(self, selector: str) -> list[dict[str, Any]]:
        """Pods that a label selector of `a=b`, `a!=b`, `a` and `!a` matches."""
        return [pod for pod in self.pods.values() if all(_matches(pod, term) for term in selector.split(",") if term)]


def status(end: PodEnd, began: datetime) -> dict[str, Any]:
    """The pod's status once it ended so."""
    if end.phase == "Pending":
        return {"phase": "Pending"}
    stamps = {"startedAt": _stamp(began), "finishedAt": _stamp(datetime.now(UTC))}
    ended = {"exitCode": end.exit_code, "message": end.message, "reason": end.reason, **stamps}
    state = {"running": {"startedAt": _stamp(began)}} if end.phase == "Running" else {"terminated": ended}
    container = {"name": "base", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}
    phase = end.phase or ("Failed" if end.exit_code else "Succeeded")
    return {"phase": phase, "startTime": _stamp(began), "containerStatuses": [container]}


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _matches(pod: dict[str, Any], term: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    if term.startswith("!"):
        return term[1:] not in labels
    if "=" not in term:
        return term in labels
    name, wants, value = re.split(r"(!?=)", term, maxsplit=1)
    return (labels.get(name) == value) is (wants == "=")


def _handler(pods: PodServer) -> type[BaseHTTPRequestHandler]:
    return type("Handler", (_Handler,), {"pods": pods})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet; apart, each answer waits 40 ms for a delayed ACK
    pods: PodServer

    def date_time_string(self, timestamp=None):
        return format_datetime(datetime.now(UTC) + self.pods.ahead, usegmt=True)

    def do_GET(self):
        parts = urlsplit(self.path)
        found = PODS.match(parts.path)
        self.pods.asked.append(f"GET {parts.path}")
        if lease := LEASE.match(parts.path):
            return self._answer_lease(lease["name"])
        if found is None:
            events = self.pods.events if EVENTS.match(parts.path) else []
            return self._answer(200, {"apiVersion": "v1", "items": events})
        if found["log"]:
            return self._answer_log()
        if found["name"]:
            return self._answer_pod(self.pods.pods.get(found["name"]))
        query = parse_qs(parts.query)
        if "watch" in query:
            return self._watch(query["fieldSelector"][0].removeprefix("metadata.name="))
        selector = query.get("labelSelector", [""])[0]
        return self._answer(200, {"kind": "PodList", "apiVersion": "v1", "items": self.pods.selected(selector)})

    def _answer_log(self):
        if self.pods.unread_logs:
            self.pods.unread_logs -= 1
            self.pods.during_unread_log()
            return self._answer(500, {"kind": "Status", "status": "Failure", "code": 500})
        self.pods.during_log()
        return self._answer(200, b"2026-01-01T00:00:00Z working\n")

    def _answer_lease(self, name):
        if name is None:
            return self._answer(200, {"kind": "LeaseList", "items": list(self.pods.leases.values())})
        return self._answer_pod(self.pods.leases.get(name))

    def _watch(self, name):
        self.pods.asked[-1] += f"?watch {name}"
        if why := self.pods.watch_refusal:
            return self._answer(403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": why})
        pod = self.pods.pods[name]
        self.pods.during_watch(pod)
        change = {"type": "MODIFIED" if name in self.pods.pods else "DELETED", "object": pod}
        return self._answer(200, json.dumps(change).encode() + b"\n")

    def do_POST(self):
        self.pods.asked.append(f"POST {self.path}")
        body = self._body()
        if self.pods.refusal:
            status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": self.pods.refusal}
            return self._answer(403, status | {"code": 403})
        return self._answer(201, self.pods.create(body))

    def do_PATCH(self):
        self.pods.asked.append(f"PATCH {self.path}")
        pod, patch = self.pods.pods.get(self._name()), self._body()
        if pod:
            pod["metadata"]["labels"] |= patch["metadata"]["labels"]
        self._answer_pod(pod)

    def do_DELETE(self):
        self.pods.asked.append(f"DELETE {self.path}")
        pod, uid = self.pods.pods.get(self._name()), (self._body().get("preconditions") or {}).get("uid")
        if pod and uid not in (None, pod["metadata"].get("uid")):
            return self._answer(409, {"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409})
        if self._name() in self.pods.lingering:
            return self._answer_pod(pod)
        return self._answer_pod(self.pods.pods.pop(self._name(), None))

    def _name(self):
        return urlsplit(self.path).path.rpartition("/")[2]

    def _body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def _answer_pod(self, pod):
        missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        self._answer(200, pod) if pod else self._answer(404, missing)

    def _answer(self, code, value):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass
