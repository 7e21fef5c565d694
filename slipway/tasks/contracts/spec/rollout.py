"""The `rollout` section of a spec: how traffic shifts to a release, and what stays deployed."""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.schedule import Schedule
from slipway.tasks.contracts.spec_fields import MAX_KEPT, MAX_REQUESTS, MAX_STEPS, MAX_WAIT_S

Percent = Annotated[int, Field(ge=1, le=99)]


CANARY_STEPS = (5, 25, 50)
LOOK_SPARE_S = 30
"""What a watched step takes besides rollout.bake_s: until the Gateway has its weights, and for the last probe."""


class CanaryLimits(UserDocument):
    """When a canary step passes: limits for the candidate beside the live release, both under real traffic."""

    min_requests: int = Field(
        default=20, ge=1, le=MAX_REQUESTS, description="requests that each release has to answer in a step to be judged"
    )
    extra_errors: float = Field(
        default=0.01,
        ge=0.0,
        le=1.0,
        description="share of failed requests by which the candidate may exceed the live release",
    )
    slowdown: float = Field(
        default=1.5,
        ge=1.0,
        le=100.0,
        description="mean time of the candidate over that of the live release: of answers, of requests, in Triton's "
        "queue, until the first response where Triton exports it, and of the probe",
    )
    blind_looks: int = Field(
        default=2,
        ge=0,
        le=20,
        description="times that a step is watched again because it could not be judged; then the canary is rolled back",
    )


MIN_DRILL_REQUESTS = 20
"""Requests that a drill sends on average before, between and after its flips: fewer would hardly meet a flip."""


class DrillSettings(UserDocument):
    """A drill: promoted and rolled back on a schedule, under load, so that the way back is known to work."""

    schedule: Schedule = Field(default="@weekly", description="when the DAG `drill__<name>` runs, in UTC")
    request_rate: float = Field(
        default=2.0, ge=0.1, le=100.0, description="requests per second that the drill sends, besides those of clients"
    )
    seconds: int = Field(
        default=30, ge=5, le=600, description="how long they are sent before, between and after the two flips"
    )

    @model_validator(mode="after")
    def _it_ends_and_sends_enough(self) -> Self:
        if self.schedule == "@continuous":
            raise ValueError(
                "schedule @continuous would drill without a pause, and a release could never begin: choose @weekly, or "
                "a cron expression"
            )
        if self.request_rate * self.seconds < MIN_DRILL_REQUESTS:
            raise ValueError(
                f"{self.request_rate:g} requests/s for {self.seconds} s are {self.request_rate * self.seconds:g} "
                f"requests, expected at least {MIN_DRILL_REQUESTS}: raise request_rate or seconds"
            )
        return self


class Rollout(UserDocument):
    """How traffic shifts, and what stays deployed."""

    strategy: Literal["blue-green", "canary"] = "blue-green"
    steps: tuple[Percent, ...] = Field(
        default=CANARY_STEPS,
        max_length=MAX_STEPS,
        description="canary: percent of the requests that the candidate gets, step by step",
    )
    canary: CanaryLimits | None = Field(
        default=None, description="canary: its limits; the defaults of each when absent"
    )
    mirror: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None,
        description="canary: percent of the live HTTP requests that are copied to the candidate before the first step, "
        "while clients get the live release's answers; none when absent",
    )
    bake_s: int = Field(
        default=0,
        ge=0,
        le=MAX_WAIT_S,
        description="how long a promoted release is watched before promote ends; with canary, each of its steps too",
    )
    keep: int = Field(
        default=2,
        ge=1,
        le=MAX_KEPT,
        description="releases that stay deployed, the live one included; with surge none only the live one does, and "
        "the others start again for a rollback",
    )
    surge: Literal["full", "none"] = Field(
        default="full",
        description="what a candidate starts on: full, on GPUs beside the live release's; none, on those of the live "
        "release, which is scaled to one replica, or stopped where one would leave no room, until the promotion or the "
        "roll back",
    )
    approval: Literal["none", "human"] = "none"
    drill: DrillSettings | None = Field(
        default=None,
        description="rolls back to the previous release and promotes the live one again, on a schedule and under load; "
        "never when absent",
    )

    @property
    def limits(self) -> CanaryLimits:
        """The limits of a canary."""
        return self.canary or CanaryLimits()

    @property
    def watch_s(self) -> int:
        """The longest time that promote may watch a release."""
        if self.strategy != "canary":
            return self.bake_s
        watched = (len(self.steps) + (self.mirror is not None)) * (1 + self.limits.blind_looks)
        return (self.bake_s + LOOK_SPARE_S) * watched + self.bake_s

    @property
    def words(self) -> str:
        """How the requests move, for a person."""
        if self.strategy != "canary":
            taken = "" if self.surge == "full" else ", on GPUs that the live release gave up for the candidate"
            return f"blue-green: all requests move at once{taken}"
        mirrored = f"a copy of {self.mirror} % of the HTTP requests, then " if self.mirror else ""
        steps = ", ".join(map(str, self.steps))
        return f"canary: {mirrored}{steps} % of the requests, each watched for {self.bake_s} s; then all of them"

    @model_validator(mode="after")
    def _a_drill_has_two_releases(self) -> Self:
        if self.drill is None:
            return self
        if self.surge == "none":
            raise ValueError(
                "drill needs two releases side by side, and with surge none there are GPUs for one: remove drill, or "
                "choose surge full"
            )
        if self.keep == 1:
            raise ValueError(
                "drill rolls back to the previous release, and with keep 1 none is kept: remove drill, or raise keep"
            )
        return self

    @model_validator(mode="after")
    def _a_canary_has_steps_and_time(self) -> Self:
        if self.strategy != "canary":
            for field, unset in (("canary", None), ("mirror", None), ("steps", CANARY_STEPS)):
                if getattr(self, field) != unset:
                    raise ValueError(f"{field} belongs to strategy canary: remove it, or choose canary")
            return self
        if self.surge == "none":
            raise ValueError(
                "a canary shares the requests of a live release that serves in full, and with surge none that release "
                "is scaled to one replica or stopped: choose blue-green, or surge full"
            )
        if not self.steps or any(after <= before for before, after in pairwise(self.steps)):
            raise ValueError(f"steps of a canary are increasing percentages such as [5, 25, 50], found {[*self.steps]}")
        if not self.bake_s:
            raise ValueError("a canary needs bake_s: how many seconds each step is watched before it is judged")
        return self
