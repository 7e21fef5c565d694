"""Reviews of a user's own rights: `kubectl auth can-i`, `kubectl auth whoami`. They are not stored."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..access.authorization import Authorizer, Rule
from ..access.identity import User
from ..access.urls import RequestInfo
from ..objects.resources import Object
from ..objects.status import bad_request

KINDS = {
    ("apis/authorization.k8s.io/v1", "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    ("apis/authorization.k8s.io/v1", "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    ("apis/authentication.k8s.io/v1", "selfsubjectreviews"): "SelfSubjectReview",
}


def kind_of(info: RequestInfo) -> str | None:
    """The kind of review that a request creates; None for any other request."""
    return KINDS.get((info.root, info.resource)) if info.verb == "create" and not info.name else None


def answer(kind: str, authorizer: Authorizer, user: User, body: Object) -> Object:
    """Complete a review.

    Raises:
        ApiError: 400, the review lacks a field.
    """
    spec: dict[str, Any] = body.get("spec") or {}
    match kind:
        case "SelfSubjectAccessReview":
            status: dict[str, Any] = {"allowed": authorizer.allows(user, _reviewed(spec))}
        case "SelfSubjectRulesReview":
            if not spec.get("namespace"):
                raise bad_request("no namespace on request")
            status = _rules(authorizer.rules(user, spec["namespace"]))
        case _:
            status = {"userInfo": {"username": user.name, "uid": user.uid, "groups": list(user.groups)}}
    api_version = next(root.removeprefix("apis/") for (root, _), known in KINDS.items() if known == kind)
    return {"apiVersion": api_version, "kind": kind, "metadata": {"creationTimestamp": None}} | {
        "spec": spec,
        "status": status,
    }


def _reviewed(spec: Mapping[str, Any]) -> RequestInfo:
    if path := spec.get("nonResourceAttributes"):
        return RequestInfo(path.get("verb", ""), path.get("path", ""))
    attributes = spec.get("resourceAttributes")
    if not attributes:
        raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")
    return RequestInfo(
        attributes.get("verb", ""),
        "",
        root="reviewed",
        group=attributes.get("group", ""),
        resource=attributes.get("resource", ""),
        namespace=attributes.get("namespace", ""),
        name=attributes.get("name", ""),
        subresource=attributes.get("subresource", ""),
    )


def _rules(rules: Iterable[Rule]) -> dict[str, Any]:
    listed = list(rules)
    fields = ("verbs", "apiGroups", "resources", "resourceNames")
    resource_rules = [{field: rule[field] for field in fields if rule.get(field)} for rule in listed]
    return {
        "resourceRules": [rule for rule in resource_rules if "resources" in rule],
        "nonResourceRules": [
            {"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}
            for rule in listed
            if rule.get("nonResourceURLs")
        ],
        "incomplete": False,
    }
