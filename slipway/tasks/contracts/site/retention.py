"""What the object store keeps: the site's policy, which releases it keeps, and the report of what was deleted. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Self

from pydantic import Field, model_validator

from slipway.tasks.contracts.base import Contract, UserDocument
from slipway.tasks.contracts.kubernetes_text import RunIdentity
from slipway.tasks.contracts.schedule import Schedule

MAX_DAYS = 3650


class RetentionPolicy(UserDocument):
    """What `retention` keeps. Releases that a channel names, and deployed ones, are kept whatever it says."""

    schedule: Schedule | None = Field(
        default="41 4 * * *", description="when the DAG `retention` runs, in UTC; null: only by `slipway gc`"
    )
    releases_per_model: int = Field(
        default=5, ge=1, le=1000, description="how many of a model's newest planned releases keep their artifacts"
    )
    days: int = Field(
        default=30, ge=0, le=MAX_DAYS, description="days since its last step that any release keeps its artifacts"
    )
    evidence_days: int = Field(
        default=365,
        ge=0,
        le=MAX_DAYS,
        description="days that documents stay: plans, requests, results, evidence, and releases without artifacts",
    )
    grace_h: int = Field(
        default=72,
        ge=1,
        le=24 * MAX_DAYS,
        description="hours in which nothing is deleted; longer than the longest step, which may take 24 h",
    )

    @model_validator(mode="after")
    def _documents_outlive_artifacts(self) -> Self:
        if self.evidence_days < self.days:
            raise ValueError("evidence_days is at least days: a release that keeps its artifacts keeps its documents")
        return self


class RetentionRequest(Contract):
    """The request of a run of `retention`."""

    if_invalid = "Correct the argument with that name."

    run: RunIdentity = Field(description="identity of the Airflow run, or of a run by hand")
    dry_run: bool = Field(default=False, description="report what would be deleted, and delete nothing")

    @property
    def model(self) -> str:
        """Empty: it is a request for the whole site."""
        return ""


Kind = Literal["artifact", "release", "evidence", "document", "upload"]
DeletionOutcome = Literal["would-delete", "planned", "deleted", "kept", "incomplete"]


class Deletion(Contract):
    """One thing that the policy does not keep."""

    kind: Kind
    uri: str = Field(description="of one object, or the common prefix of several, with a slash at its end")
    objects: int = Field(ge=0)
    size_bytes: int = Field(ge=0, description="of these objects; unknown for an upload: 0")
    because: str
    outcome: DeletionOutcome = "planned"
    problem: str = Field(default="", description="why it was kept, or what the store refused")


class Total(Contract):
    """Everything of one kind with one outcome."""

    kind: Kind
    outcome: DeletionOutcome
    count: int = Field(ge=0)
    objects: int = Field(ge=0)
    size_bytes: int = Field(ge=0)


class RetentionReport(Contract):
    """retention/<run>/report.json. The deletions are beside it, in deletions-<number>.jsonl."""

    run: str
    dry_run: bool
    policy: RetentionPolicy
    started_at: datetime
    ended_at: datetime
    kept_releases: int = Field(ge=0, description="releases that keep their artifacts")
    totals: tuple[Total, ...]
    parts: tuple[str, ...] = Field(description="URIs of the deletions")
    versioned: bool | None = Field(description="whether the bucket keeps deleted versions; null: not known")


@dataclass(frozen=True)
class ReleaseFacts:
    """What decides whether a release is kept."""

    release_id: str
    planned_at: datetime
    """When release.json was written last."""
    active_at: datetime
    """When any of its objects was written last."""


def kept(
    releases: Iterable[ReleaseFacts], named: Mapping[str, str], policy: RetentionPolicy, now: datetime
) -> dict[str, str]:
    """Which releases of one model keep their artifacts, each with the reason.

    A running release is always among them: its candidate is deployed, or one of its steps ended within the grace
    period, or nothing was planned after it.

    Args:
        releases: the model's releases.
        named: release ids that a channel or a workload names, with the reason.
        policy: the site's.
        now: the time of the store's clock.
    """
    youngest = sorted(releases, key=lambda facts: facts.planned_at, reverse=True)
    age = max(timedelta(days=policy.days), timedelta(hours=policy.grace_h))
    reasons: dict[str, str] = {}
    for position, facts in enumerate(youngest):
        if facts.release_id in named:
            reasons[facts.release_id] = named[facts.release_id]
        elif position < policy.releases_per_model:
            reasons[facts.release_id] = f"one of the {policy.releases_per_model} newest"
        elif now - facts.active_at <= age:
            reasons[facts.release_id] = "active lately"
    return reasons
