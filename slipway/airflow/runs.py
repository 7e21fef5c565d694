"""Names derived from an Airflow run and a release. Pure, so that a re-attached task derives the same names."""

import hashlib
import re

MAX_RUN_CHARS = 50
MAX_POD_NAME_CHARS = 54  # 63, a DNS label, less the suffix that KubernetesPodOperator adds: "-" and 8 characters
RUN_DIGEST_DIGITS = 8
TAB = "slipway"
"""The tab with the report of a run, in the address of that run's page."""


def run_identity(run_id: str) -> str:
    """Turn `run_id` into text that object names and labels allow: [A-Za-z0-9._-], at most 50 characters.

    An id that has to be changed gets a digest of the original, so that two runs never share an identity.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id).strip("._-")
    if safe == run_id and len(safe) <= MAX_RUN_CHARS:
        return safe
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:RUN_DIGEST_DIGITS]
    return f"{safe[: MAX_RUN_CHARS - RUN_DIGEST_DIGITS - 1].rstrip('._-')}-{digest}".lstrip("-")


def pod_name(name: str, release_id: str | None, step: str) -> str:
    """`<name>-<digest of the release>-<step>`, without KubernetesPodOperator's suffix. Only a long model name is cut.

    The digest is left out for plan, which runs before there is a release.
    """
    tail = f"-{release_id.removeprefix(name + '-')}-{step}" if release_id else f"-{step}"
    return name[: MAX_POD_NAME_CHARS - len(tail)].rstrip("-") + tail
