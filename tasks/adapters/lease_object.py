"""What a Kubernetes Lease says: who holds it, since when and until when. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Document = dict[str, Any]
"""A Lease, or its spec, as JSON."""


@dataclass(frozen=True)
class LeaseHolder:
    """Who holds a lease, and until when unless it is renewed."""

    holder: str
    since: datetime
    until: datetime


def holder_of(lease: Document) -> LeaseHolder | None:
    """Who a Lease says has it; None when it was given back."""
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return None
    renewed = datetime.fromisoformat(spec["renewTime"])
    since = datetime.fromisoformat(spec.get("acquireTime") or spec["renewTime"])
    return LeaseHolder(
        spec["holderIdentity"], since, renewed + timedelta(seconds=spec.get("leaseDurationSeconds") or 0)
    )


def spec_of(holder: str, duration_s: int, since: datetime, now: datetime) -> Document:
    """Of a Lease that `holder` has had since `since` and renews at `now`."""
    times = {"acquireTime": _micro_time(since), "renewTime": _micro_time(now)}
    return {"holderIdentity": holder, "leaseDurationSeconds": duration_s, **times}


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
