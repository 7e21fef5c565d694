"""Reads and writes Kubernetes Leases: who holds one, since when and until when. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.lease import DAG_RUN, DRILLS

MOST_CHARS = 1024
"""The longest name of a holder, or of its Airflow run, that is read."""
Document = dict[str, Any]
"""A Lease, or its spec, as JSON."""


@dataclass(frozen=True)
class LeaseHolder:
    """Who holds a lease, and until when unless it is renewed."""

    holder: str
    since: datetime
    until: datetime
    dag_run: str = ""
    """Airflow run of the holder; empty for a step that was started by hand."""
    version: str = ""
    """Resource version at which the lease was read."""

    @property
    def is_drill(self) -> bool:
        """Whether a drill by Airflow holds it."""
        return self.dag_run.startswith(DRILLS)

    def is_same(self, holder: str, dag_run: str) -> bool:
        """Whether `holder` holds the lease; `dag_run`, if known, distinguishes runs of two DAGs with the same id."""
        return self.holder == holder and self.dag_run in {"", dag_run or self.dag_run}


def holder_of(lease: Document) -> LeaseHolder | None:
    """The holder of a Lease; None when it was released.

    Raises:
        InputError: Slipway did not write it so.
    """
    spec, metadata = lease.get("spec") or {}, lease.get("metadata") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return None
    try:
        return LeaseHolder(
            _name(spec["holderIdentity"]),
            _moment(spec.get("acquireTime") or spec["renewTime"]),
            _moment(spec["renewTime"]) + timedelta(seconds=spec.get("leaseDurationSeconds") or 0),
            _name((metadata.get("annotations") or {}).get(DAG_RUN) or ""),
            metadata.get("resourceVersion", ""),
        )
    except (TypeError, ValueError, OverflowError) as error:
        name = metadata.get("name")
        raise InputError(
            f"Lease {name} was changed by somebody else, so nobody can tell which run changes the model",
            found=error,
            remedy=f"If no run is at the model, delete it: kubectl -n {metadata.get('namespace')} delete lease {name}",
        ) from error


def spec_of(holder: str, duration_s: int, since: datetime, now: datetime, before: Document | None = None) -> Document:
    """The spec of a Lease that `holder` has had since `since` and renews at `now`.

    It differs from the one `before`, even within a second: a write that changes nothing makes no new version.
    """
    renewed = _micro_time(now)
    if before and (before.get("spec") or {}).get("renewTime") == renewed:
        renewed = _micro_time(now + timedelta(microseconds=1))
    times = {"acquireTime": _micro_time(since), "renewTime": renewed}
    return {"holderIdentity": holder, "leaseDurationSeconds": duration_s, **times}


def _name(text: Any) -> str:
    name = str(text)
    if len(name) > MOST_CHARS or not name.isprintable():
        raise ValueError(f"a name of {len(name)} characters that is not a run's: {name[:64]!r}")
    return name


def _moment(text: Any) -> datetime:
    if not isinstance(text, str) or len(text) > MOST_CHARS:
        raise ValueError(f"a time that is {str(text)[:64]!r}")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without its zone: {text}")
    return moment


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
