"""Turns errors of the Kubernetes client into Slipway's."""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from slipway.tasks.adapters.kube.starting_server import NOT_ALLOWED
from slipway.tasks.contracts.errors import ConflictError, InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.pods import refusals
from slipway.tasks.contracts.pods.start_phases import EXCEEDED
from slipway.tasks.contracts.wire.no_answer import why_no_answer

NOT_FOUND, CONFLICT, TOO_MANY_REQUESTS, SERVER_ERROR = 404, 409, 429, 500
DENIED = frozenset({401, 403})
QUOTED_CHARS = 256
NAMESPACED = re.compile(r"\S+ (?P<namespace>[^\s/]+)/")
NO_NAMESPACE = re.compile(r'namespaces "(?P<name>[^"]+)" not found')
"""In the answer to a request in a namespace that is not there (plugin/namespace/lifecycle, Kubernetes 1.36)."""


class MissingError(InputError):
    """The cluster has no such object."""


class UnknownKindError(InputError):
    """The cluster's API has no such kind."""


class StaleError(ConflictError):
    """Another client changed the object after it was read."""


@contextlib.contextmanager
def translated(subject: str) -> Iterator[None]:
    """Raise Slipway's error for each error of the client; `subject` names the object in its message."""
    from kubernetes.client.exceptions import ApiException
    from kubernetes.dynamic.exceptions import ResourceNotFoundError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        raise _of_response(subject, error) from error
    except ResourceNotFoundError as error:
        raise UnknownKindError(
            f"{subject}: the cluster does not have this kind ({error})", remedy="Install its API."
        ) from error
    except (HTTPError, OSError) as error:
        raise UnavailableError(
            f"{subject}: the cluster does not answer ({why_no_answer(error)})",
            remedy="Check that its API server is up and reached from here; then run the step again.",
        ) from error


def _of_response(subject: str, error: Any) -> PipelineError:
    status, message = int(error.status or 0), _message(error)
    if status == NOT_FOUND and (namespace := NO_NAMESPACE.search(message)):
        return MissingError(
            f"{subject}: the cluster has no namespace {namespace['name']}",
            remedy="Create it with `kubectl apply -k k8s_manifests/overlays/NAME`, the overlay of this cluster "
            "(docs/cluster-setup.md); then try again.",
        )
    if status == NOT_FOUND:
        return MissingError(
            f"{subject} does not exist ({message})",
            remedy="Apply k8s_manifests/ if the object comes from there; otherwise run the step again.",
        )
    if status == CONFLICT:
        return StaleError(
            f"{subject} was changed by another client at the same time ({message})", remedy="Run the step again."
        )
    if status in DENIED or (status in refusals.FINAL and refusals.denies(message)):
        return _denied(subject, message)
    if status >= SERVER_ERROR or status in {0, TOO_MANY_REQUESTS}:
        return UnavailableError(f"{subject}: the cluster answered {status} ({message})", remedy="Run the step again.")
    return InputError(
        f"{subject}: the cluster rejected it with {status} ({message})",
        remedy="Correct the field that it names, in the spec's serving part or the site file.",
    )


def _denied(subject: str, message: str) -> PipelineError:
    if EXCEEDED in message:
        return UnavailableError(
            f"{subject}: a quota has no room for it ({message})",
            remedy="Raise that ResourceQuota, or run fewer releases at once.",
        )
    place = NAMESPACED.match(subject)
    if place and refusals.lasts(message) and not NOT_ALLOWED.search(message):
        remedy = refusals.remedy(message, place["namespace"], "of its pods")
    else:
        remedy = "Check the service account's Role."
    return InputError(f"{subject}: the cluster does not allow it ({message})", remedy=remedy)


def _message(error: Any) -> str:
    text = error.body if isinstance(error.body, str) else (error.body or b"").decode(errors="replace")
    with contextlib.suppress(ValueError):
        text = str(json.loads(text).get("message", text))
    return text[:QUOTED_CHARS] or str(error.reason)
