"""What is said, and what to do, when the cluster refuses to create a pod: a step's, or a replica of a server. Pure.

Messages are those of Kubernetes 1.36: plugin/pkg/admission/limitranger, plugin/pkg/admission/serviceaccount,
plugin/pkg/admission/podtolerationrestriction, apiserver/pkg/admission/plugin (webhook, policy, resourcequota,
namespace/lifecycle), pod-security-admission and apiserver/pkg/endpoints/handlers/responsewriters.
"""

import re
from typing import NamedTuple

from slipway.tasks.contracts.pods.start_phases import EXCEEDED

FINAL = frozenset({400, 403, 422})
"""Statuses of a refusal that stays until a person changes something. An exceeded quota, a 403 too, is waited for."""


class Refusal(NamedTuple):
    """Words of the API server, and what to do about them."""

    words: str
    """A regular expression. What it names `name` is put into the remedy."""
    remedy: str


REFUSALS = (
    Refusal(
        r"(?:maximum|minimum) \S+ usage per (?:Container|Pod) is|limit to request ratio per",
        "A LimitRange of namespace {namespace} forbids it: change it, or the shape {shape} in the site file. See it "
        "with `kubectl -n {namespace} describe limitrange`.",
    ),
    Refusal(
        r'admission webhook "(?P<name>[^"]+)"',
        "The cluster's admission webhook {name} forbids it: ask those who run it for an exception for namespace "
        "{namespace}, or change what it names.",
    ),
    Refusal(
        r"ValidatingAdmissionPolicy '(?P<name>[^']+)'",
        "The cluster's ValidatingAdmissionPolicy {name} forbids it: ask those who wrote it for an exception for "
        "namespace {namespace}, or change what it names.",
    ),
    Refusal(
        r"failed quota: (?P<name>[^:\s]+)",
        "ResourceQuota {name} of namespace {namespace} counts what the pods of steps do not set: take that out of the "
        "quota, or give it a default with a LimitRange.",
    ),
    Refusal(
        r"violates PodSecurity",
        "Slipway's pods keep to the level restricted; something that was added to them does not. See the labels of "
        "namespace {namespace}.",
    ),
    Refusal(
        r"error looking up service account|serviceaccount \S+ not found",
        "Apply k8s_manifests to the cluster: docs/cluster-setup.md.",
    ),
    Refusal(
        r"cannot \w+ resource",
        "Airflow's identity may not do that: apply k8s_manifests, and let Airflow's connection use the service account "
        "slipway-airflow (docs/cluster-setup.md).",
    ),
    Refusal(
        r"is being terminated",
        "Namespace {namespace} is being deleted: make it again with `kubectl apply -k` and `slipway setup`.",
    ),
)
OTHERWISE = "Change what the cluster names."
DENYING = re.compile(r"is forbidden: |denied (?:the )?request")
"""In the words of RBAC and of admission. A ValidatingAdmissionPolicy's status is that of a wrong field, 422."""
LASTING = re.compile(rf"{DENYING.pattern}|is invalid: ")
"""In the words of a refusal that stays. A webhook that does not answer, for example, is a failure and not a refusal."""


def rejection(status: int, message: str, namespace: str, shape: str) -> str:
    """What is said of a request that the cluster rejected, with what to do unless it may succeed later.

    Args:
        status: the HTTP status.
        message: the API server's own words.
        namespace: the namespace of the pod.
        shape: name of the pod's shape in the site file.
    """
    text = f"the cluster rejected a request: {message.rstrip('.')}"
    return f"{text}. {remedy(message, namespace, shape)} Then clear this task." if status in FINAL else text


def lasts(message: str) -> bool:
    """Whether the API server refuses a pod until a person changes something, judged by its words alone."""
    return bool(LASTING.search(message)) and EXCEEDED not in message


def denies(message: str) -> bool:
    """Whether the API server refuses a request that it understands, and not a field of it."""
    return bool(DENYING.search(message))


def remedy(message: str, namespace: str, shape: str) -> str:
    """What to do about a refusal; the arguments are those of `rejection`."""
    for refusal in REFUSALS:
        if found := re.search(refusal.words, message):
            return refusal.remedy.format(namespace=namespace, shape=shape, **found.groupdict())
    return OTHERWISE
