"""Text that may be part of a Kubernetes object, and how Kubernetes would expand it. Pure.

Kubernetes replaces `$(NAME)` in a container's command, arguments and environment by that variable, secrets included,
and `$$` by `$` (kubernetes/kubernetes fde22c3f, third_party/forked/golang/expansion/expand.go). So text that a
person wrote never becomes such a value: specs and parameters travel in a request document, and every other text that
reaches a pod has a pattern without `$`.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import StringConstraints

from slipway.tasks.contracts.errors import InputError

_NAME = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_VALUE = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
QUALIFIED = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"

Namespace = Annotated[str, StringConstraints(pattern=rf"^{_NAME}$", max_length=63)]
ObjectName = Annotated[str, StringConstraints(pattern=rf"^{_NAME}(\.{_NAME})*$", max_length=253)]
LabelKey = Annotated[str, StringConstraints(pattern=rf"^({_NAME}(\.{_NAME})*/)?{QUALIFIED}$", max_length=317)]
"""An optional DNS subdomain and a name of at most 63 characters."""
LabelValue = Annotated[str, StringConstraints(pattern=rf"^({_VALUE})?$", max_length=63)]
NonEmptyLabelValue = Annotated[str, StringConstraints(pattern=rf"^{_VALUE}$", max_length=63)]
ImageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$", max_length=500)]
"""Registry, repository, tag and digest, checked by their allowed characters."""
RunIdentity = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
"""Identity of an Airflow run, or of a run by hand: it is part of object names and a label."""
ReleaseId = Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
ObjectUri = Annotated[str, StringConstraints(pattern=r"^s3://[a-z0-9][A-Za-z0-9._/-]*$", max_length=1000)]
"""An object's address, checked by its allowed characters."""

REFERENCES = frozenset({"$(POD_IP)", "$(POD_NAME)", "$(POD_UID)", "$(GROUP_KEY)"})
"""The only intended expansions: the pod's own address, name, identity and group."""
_INTENDED = re.compile("|".join(re.escape(reference) for reference in sorted(REFERENCES)))
_TOUCHED = re.compile(r"\$[$(]|[\x00-\x08\x0b-\x1f\x7f]")
MAX_VALUE_CHARS = 100_000  # Linux refuses a single argument or variable of 128 KiB (MAX_ARG_STRLEN)


def check_pod_values(values: Iterable[str]) -> None:
    """Make sure that each command word, argument or variable reaches its process unchanged.

    Raises:
        InputError: Kubernetes would expand one unintentionally, or Linux would refuse it.
    """
    for value in values:
        match = _TOUCHED.search(value) and _TOUCHED.search(_INTENDED.sub("", value))
        if match or len(value) > MAX_VALUE_CHARS:
            raise InputError(
                "a value of a pod's command or environment would not reach the process unchanged",
                found=repr(match[0]) if match else f"{len(value)} characters",
                remedy="Remove it from the spec or the site file that it comes from.",
            )


def container_values(document: Any) -> list[str]:
    """Collect the command words, arguments and variables' values of all containers of a manifest."""
    if isinstance(document, list):
        return [value for item in document for value in container_values(item)]
    if not isinstance(document, dict):
        return []
    values = [word for part in ("command", "args") for word in document.get(part) or []]
    values += [entry["value"] for entry in document.get("env") or [] if "value" in entry]
    return values + [value for item in document.values() for value in container_values(item)]
