"""A release: what was requested, what was planned, and what each step reported."""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from slipway.tasks.contracts.base import DNS_LABEL, PRINTABLE, Contract
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.kubernetes_text import ObjectUri, ReleaseId, RunIdentity
from slipway.tasks.contracts.redaction import bounded
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.spec_fields import MAX_NAME_CHARS
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.plan import Plan

FAILED_RESULT_KEY = "failed_result"
"""Key of the XCom that a failed task leaves: the result of its step. A step that succeeded has `return_value`."""

WHY_KEY = "why"
"""Key of the XCom that a failed task leaves besides, also where its step left no result: its error's text."""

REMEDY_PREFIX = "What to do: "
"""Begins the line of a failed task's log with an error's remedy, for a person. The `slipway` command reads it where
the task left no result."""

PREVIOUS, LIVE = "previous", "live"
"""What a revert may ask for besides the id of a release, which is longer than either."""

MAX_REQUEST_BYTES = 8 * 2**20
"""A spec has at most 1 MiB (documents.py), and a character of it becomes at most six bytes of JSON."""


class RevertRequest(Contract):
    """The request of a run of `revert`."""

    if_invalid = "Correct the argument with that name."

    name: str = Field(pattern=DNS_LABEL, max_length=MAX_NAME_CHARS, description="the model")
    run: RunIdentity = Field(description="identity of the Airflow run, or of a run by hand")
    reason: str = Field(default="", pattern=PRINTABLE, max_length=500, description="kept in the channel's history")
    to: ReleaseId = Field(
        default=PREVIOUS,
        description="id of a previous release that the channel still names; previous: the newest of them; live: deploy "
        "again what the channel names as live, after a cluster was lost",
        examples=[PREVIOUS, LIVE],
    )

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.name


class Release(Contract):
    """release.json: everything that a step needs to know besides the site."""

    id: str
    spec: ReleaseSpec
    plan: Plan
    created_at: datetime


class UnchangedRun(Contract):
    """checked.json: the last run with nothing to release. It shows that a schedule is kept although nothing changes."""

    release_id: str = Field(description="the live release, which is what the spec asks for")
    at: datetime
    run: str
    schedule: str | None = Field(description="the spec's at that time")


class Failure(Contract):
    """Why a step failed: the class for a scheduler, and the error's text and fields for a person."""

    kind: str = Field(description="the error's class")
    exit_code: int
    message: str
    what: str = Field(default="", description="what is wrong; empty for an unexpected error, as are the next three")
    found: str = ""
    expected: str = ""
    remedy: str = Field(default="", description="what to do about it")

    @classmethod
    def of(cls, error: PipelineError) -> Self:
        """Record a deliberate error; each field is bounded as the text is."""
        return cls(
            kind=type(error).__name__,
            exit_code=error.exit_code,
            message=str(error),
            what=bounded(error.what),
            found=bounded(error.found),
            expected=bounded(error.expected),
            remedy=bounded(error.remedy),
        )


class StepResult(Contract):
    """results/<step>.json. Written when a step ends, also when it fails; it becomes the task's XCom."""

    step: Step
    release: ObjectUri | None = Field(
        default=None, description="URI of release.json; for plan, of the release it planned"
    )
    run: str = Field(description="the run that this belongs to; the next run overwrites it")
    outcome: Literal["done", "stored", "failed"] = Field(description="stored: the artifact existed, nothing was run")
    summary: str = Field(description="one line for a person")
    data: dict[str, Any] = Field(default_factory=dict, description="what later steps and the UI read")
    started_at: datetime
    seconds: float = Field(ge=0)
    error: Failure | None = None
