"""Reads and writes Kubernetes Leases: who holds one, since when and until when. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tasks.contracts.lease import DAG_RUN, DRILLS

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
    """The holder of a Lease; None when it was released."""
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return None
    renewed = datetime.fromisoformat(spec["renewTime"])
    since = datetime.fromisoformat(spec.get("acquireTime") or spec["renewTime"])
    metadata = lease.get("metadata") or {}
    return LeaseHolder(
        spec["holderIdentity"],
        since,
        renewed + timedelta(seconds=spec.get("leaseDurationSeconds") or 0),
        (metadata.get("annotations") or {}).get(DAG_RUN, ""),
        metadata.get("resourceVersion", ""),
    )


def spec_of(holder: str, duration_s: int, since: datetime, now: datetime) -> Document:
    """The spec of a Lease that `holder` has had since `since` and renews at `now`."""
    times = {"acquireTime": _micro_time(since), "renewTime": _micro_time(now)}
    return {"holderIdentity": holder, "leaseDurationSeconds": duration_s, **times}


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
