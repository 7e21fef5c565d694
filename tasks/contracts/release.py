"""A release: what was asked, what was planned, and what each step reported."""

from datetime import datetime
from typing import Any, Literal, get_args

from pydantic import Field

from tasks.contracts.base import DNS_LABEL, Contract
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
    "revert",
]
STEPS: tuple[Step, ...] = tuple(step for step in get_args(Step) if step != "revert")
"""The steps of a release, in order. `revert` stands alone: it puts a previous release back, long after."""


class RevertRequest(Contract):
    """What a run of `revert` is asked."""

    remedy = "Correct the argument of that name."

    name: str = Field(pattern=DNS_LABEL, description="the model")
    run: str = Field(pattern=r"^[A-Za-z0-9._-]+$", description="identity of the Airflow run, or of a run by hand")
    reason: str = Field(default="", max_length=500, description="kept in the channel's history")


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
