"""A release: what was asked, what was planned, and what each step reported."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from tasks.contracts.base import Contract
from tasks.contracts.plan import Plan
from tasks.contracts.spec import ReleaseSpec

Step = Literal[
    "plan",
    "download",
    "quantize",
    "build",
    "assemble",
    "publish",
    "roll-out",
    "smoke-test",
    "benchmark",
    "gate",
    "promote",
    "roll-back",
]
STEPS: tuple[Step, ...] = Step.__args__  # type: ignore[attr-defined]


class Release(Contract):
    """release.json: all that a step needs to know, besides the site."""

    id: str
    spec: ReleaseSpec
    plan: Plan
    created_at: datetime


class Failure(Contract):
    """Why a step failed, as a scheduler and as a person need it."""

    kind: str = Field(description="the error's class")
    exit_code: int
    message: str


class StepResult(Contract):
    """results/<step>.json. Written when a step ends, well or not; it becomes the task's XCom."""

    step: Step
    release: str | None = Field(default=None, description="URI of release.json; of plan: of the release it planned")
    run: str = Field(description="the run this was reported to; results are overwritten by the next run")
    outcome: Literal["done", "stored", "failed"] = Field(description="stored: the artifact existed, nothing was run")
    summary: str = Field(description="one line for a person")
    data: dict[str, Any] = Field(default_factory=dict, description="what later steps and the UI read")
    started_at: datetime
    seconds: float = Field(ge=0)
    error: Failure | None = None
