"""RBAC: whether a user's roles allow a request.

Matching follows https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/apis/rbac/v1/evaluation_helpers.go. Unlike in
Kubernetes, whoever may write roles and bindings may grant more than they have themselves.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..objects.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, RBAC, ROLE_BINDINGS, ROLES, Object
from ..objects.status import denied
from ..objects.store import Store
from .identity import AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, service_account_name
from .urls import RequestInfo

ALWAYS_ALLOWED = ("/healthz", "/readyz", "/livez")
Rule = Mapping[str, Any]

_PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY = [*_PUBLIC, "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
DEFAULT_ROLES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "cluster-admin": (
        [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}],
        [MASTERS],
    ),
    "system:discovery": ([{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}], [AUTHENTICATED]),
    "system:public-info-viewer": ([{"nonResourceURLs": _PUBLIC, "verbs": ["get"]}], [AUTHENTICATED, UNAUTHENTICATED]),
}


class Authorizer:
    """Evaluates the stored roles and bindings for each request."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def require(self, user: User, info: RequestInfo) -> None:
        """Refuse a request that no role allows.

        Raises:
            ApiError: 403, no role of the user allows it.
        """
        if not self.allows(user, info):
            raise denied(info.group, info.resource, info.name, _denial(user, info))

    def allows(self, user: User, info: RequestInfo) -> bool:
        """Whether a role of the user allows the request."""
        if MASTERS in user.groups or (not info.is_resource and info.path in ALWAYS_ALLOWED):
            return True
        return any(_allows(rule, info) for rule in self._rules(user, info.namespace))

    def _rules(self, user: User, namespace: str) -> Iterator[Rule]:
        """The rules for a user in a namespace; an empty namespace means the whole cluster."""
        for binding in self._store.all(CLUSTER_ROLE_BINDINGS):
            if _binds(binding, user, ""):
                yield from self._role(binding["roleRef"], "")
        for binding in self._store.all(ROLE_BINDINGS, namespace) if namespace else []:
            if _binds(binding, user, namespace):
                yield from self._role(binding["roleRef"], namespace)

    def _role(self, reference: Mapping[str, str], namespace: str) -> list[Rule]:
        name = reference.get("name", "")
        if reference.get("kind") == CLUSTER_ROLES.kind:
            role = self._store.get(CLUSTER_ROLES, "", name)
        else:
            role = self._store.get(ROLES, namespace, name) if namespace else None
        return list((role or {}).get("rules") or [])


def add_default_roles(store: Store) -> None:
    """Create the roles that every cluster has and that clients rely on."""
    for name, (rules, groups) in DEFAULT_ROLES.items():
        meta = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": dict(meta), "rules": rules}
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": dict(meta),
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
        }
        for resource, item in ((CLUSTER_ROLES, role), (CLUSTER_ROLE_BINDINGS, binding)):
            if store.get(resource, "", name) is None:
                store.create(resource, item)


def _binds(binding: Object, user: User, namespace: str) -> bool:
    return any(_is(subject, user, namespace) for subject in binding.get("subjects") or [])


def _is(subject: Mapping[str, str], user: User, namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return subject.get("name") == user.name
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            home = subject.get("namespace") or namespace
            return bool(home) and service_account_name(home, subject.get("name", "")) == user.name
        case _:
            return False


def _allows(rule: Rule, info: RequestInfo) -> bool:
    if not _has(rule.get("verbs"), info.verb):
        return False
    if not info.is_resource:
        return any(_covers(url, info.path) for url in rule.get("nonResourceURLs") or [])
    names = rule.get("resourceNames") or []
    return (
        _has(rule.get("apiGroups"), info.group)
        and any(_names(resource, info) for resource in rule.get("resources") or [])
        and (not names or info.name in names)
    )


def _has(values: list[str] | None, wanted: str) -> bool:
    return any(value in ("*", wanted) for value in values or [])


def _names(resource: str, info: RequestInfo) -> bool:
    if not info.subresource:
        return resource in ("*", info.resource)
    return resource in ("*", f"{info.resource}/{info.subresource}", f"*/{info.subresource}")


def _covers(url: str, path: str) -> bool:
    return url in ("*", path) or (url.endswith("*") and path.startswith(url.rstrip("*")))


def _denial(user: User, info: RequestInfo) -> str:
    if not info.is_resource:
        return f'User "{user.name}" cannot {info.verb} path "{info.path}"'
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    return f'User "{user.name}" cannot {info.verb} resource "{resource}" in API group "{info.group}" {where}'
