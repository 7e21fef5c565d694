"""A drill's request and its report: what clients noticed of a roll back and of a promotion."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from slipway.tasks.contracts.base import DNS_LABEL, Contract
from slipway.tasks.contracts.kubernetes_text import RunIdentity
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.spec.rollout import DrillSettings
from slipway.tasks.contracts.spec_fields import MAX_NAME_CHARS

SKIPPED = "skipped"
"""The verdict in the result of a drill that had nothing to try out, or that came while a release was in progress."""

PhaseName = Literal["before", "during", "after"]


class DrillRequest(Contract):
    """The request of a run of `drill`."""

    if_invalid = "Correct the argument with that name."

    name: str = Field(pattern=DNS_LABEL, max_length=MAX_NAME_CHARS, description="the model")
    run: RunIdentity = Field(description="identity of the Airflow run, or of a run by hand")
    settings: DrillSettings = Field(default=DrillSettings(), description="rollout.drill of the spec")

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.name


class DrillStart(Contract):
    """evidence/<run>/drill-start.json: how the drill found the previous release, for an attempt after a kill."""

    previous: str
    replicas: int | None = Field(description="of its workload; null: it had none, so the drill removes what it starts")


class DrillFlip(Contract):
    """One change of the traffic's direction."""

    to: str = Field(description="release that took the traffic")
    seconds: float = Field(ge=0, description="from the decision until the Service reached no pod of the other release")


class DrillPhase(Contract):
    """The drill's requests that were due in one part of it."""

    phase: PhaseName = Field(description="during: from the first flip until the second one was complete")
    requests: int = Field(ge=0)
    failed: int = Field(ge=0)
    latency_p50_ms: float | None = Field(description="of those that were answered, from when they were due")
    latency_p99_ms: float | None = None


class DrillReport(Contract):
    """evidence/<run>/drill.json of the live release."""

    model: str
    run: str
    live: str = Field(description="release that was live before and after")
    previous: str = Field(description="release that took the traffic meanwhile")
    settings: DrillSettings
    started_at: datetime
    ended_at: datetime
    verdict: Verdict = Field(description="passed: both flips were complete, and no request failed")
    problem: str = Field(default="", description="why the drill could not be completed")
    was_warm: bool = Field(description="whether pods of the previous release were deployed when the drill began")
    ready_s: float | None = Field(description="how long the previous release took to be available; null: it was not")
    flips: tuple[DrillFlip, ...] = ()
    phases: tuple[DrillPhase, ...] = ()
    first_failure: str = Field(default="", description="what the first failed request got")
    requests_uri: str | None = Field(default=None, description="a row for each request; null: none was sent")

    @property
    def requests(self) -> int:
        """Requests that were sent."""
        return sum(phase.requests for phase in self.phases)

    @property
    def failed(self) -> int:
        """Requests that failed."""
        return sum(phase.failed for phase in self.phases)
