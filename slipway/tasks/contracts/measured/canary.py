"""What a canary saw: canary.json in the evidence of a run, written when the traffic is split and after each verdict."""

from pydantic import AwareDatetime, Field

from slipway.tasks.contracts.base import Contract
from slipway.tasks.contracts.kubernetes_text import ReleaseId
from slipway.tasks.contracts.measured.gate import Verdict

CANARY_FILE = "canary.json"


class CanaryLook(Contract):
    """The verdict on one step, after it was watched."""

    at: AwareDatetime
    percent: int = Field(ge=0, le=100, description="of the requests that the candidate answered")
    mirror: int | None = Field(default=None, ge=1, le=100, description="percent that it got as copies")
    verdict: Verdict
    why: tuple[str, ...]


class CanaryRecord(Contract):
    """How the requests are split now, and each verdict so far."""

    candidate: ReleaseId
    live: ReleaseId
    mirrors: int | None = Field(default=None, ge=1, le=100, description="percent that is copied before the first step")
    steps: tuple[int, ...] = Field(description="percent of the requests at each step")
    percent: int = Field(ge=0, le=100, description="of the requests that go to the candidate")
    mirror: int | None = Field(default=None, ge=1, le=100, description="percent that it gets as copies")
    phase: str = Field(description="mirroring, shifting, passed or rolled-back")
    looks: tuple[CanaryLook, ...] = Field(default=(), description="the oldest first")
