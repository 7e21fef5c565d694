"""What the manifests let each service account do, and every request that an API server knows."""

from dataclasses import dataclass
from functools import cache

import yaml

from tests.unit.manifests.objects import MANIFESTS, base_objects, listed

ROLES = ("Role", "ClusterRole")
BINDINGS = ("RoleBinding", "ClusterRoleBinding")
EVERYONE = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
} | {("authentication.k8s.io", "selfsubjectreviews")}
"""What Kubernetes' ClusterRole system:basic-user lets everybody create."""


@dataclass(frozen=True)
class Call:
    """A verb on a resource of a namespace; of the whole cluster if `namespace` is empty."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str

    def __str__(self):
        where = self.namespace or "the cluster"
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group} in {where}"

    def request(self):
        """Method and path. Whoever is let in after all changes nothing: names do not exist, and changes are dry runs."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        place = f"{root}/namespaces/{self.namespace}" if self.namespace else root
        resource, _, part = self.resource.partition("/")
        one = f"{place}/{resource}/none{'/' if part else ''}{part}"
        changed = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
        match self.verb:
            case "list":
                return "GET", f"{place}/{resource}"
            case "watch":
                return "GET", f"{place}/{resource}?watch=1&timeoutSeconds=1"
            case "deletecollection":
                return "DELETE", f"{place}/{resource}?dryRun=All"
            case "create" if not part:
                return "POST", f"{place}/{resource}?dryRun=All"
            case "get":
                return "GET", one
            case verb:
                return changed[verb], f"{one}?dryRun=All"


@cache
def granting_objects():
    """The base, and the component that grants more."""
    folder = MANIFESTS / "multinode"
    return [*base_objects(), *(yaml.safe_load(file.read_text()) for file in listed(folder))]


def accounts():
    """Namespace and name of each service account."""
    found = [item["metadata"] for item in granting_objects() if item["kind"] == "ServiceAccount"]
    return sorted((each["namespace"], each["name"]) for each in found)


def account(namespace, name):
    """A service account as a binding names it."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def people():
    """Groups of people, as bindings name them, each with the binding's role."""
    bindings = [item for item in granting_objects() if item["kind"] in BINDINGS]
    return [(who, each["roleRef"]) for each in bindings for who in each["subjects"] if who["kind"] == "Group"]


def is_granted(call, subject):
    """Whether a role of the manifests, bound to the subject, lets it make the call."""
    if call.verb == "create" and (call.group, call.resource) in EVERYONE:
        return True
    return any(
        call.verb in rule["verbs"] and call.group in rule["apiGroups"] and call.resource in rule["resources"]
        for place, rule in _rules(tuple(subject.items()))
        if place in {"", call.namespace}
    )


@cache
def _rules(subject):
    """Each rule of the subject, with the namespace that it is for; empty means every one."""
    return list(_bound_rules(dict(subject)))


def _bound_rules(subject):
    objects = granting_objects()
    roles = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item["rules"]
        for item in objects
        if item["kind"] in ROLES
    }
    for item in objects:
        if item["kind"] in BINDINGS and subject in item["subjects"]:
            place, role = item["metadata"].get("namespace", ""), item["roleRef"]
            home = place if role["kind"] == "Role" else ""
            for rule in roles[role["kind"], home, role["name"]]:
                yield place, rule
