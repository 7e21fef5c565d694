"""The `serving` section of a spec: where and how the model is served."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from slipway.tasks.contracts.base import DNS_LABEL, UserDocument
from slipway.tasks.contracts.engine.scaling import Autoscale
from slipway.tasks.contracts.kubernetes_text import ImageName
from slipway.tasks.contracts.spec_fields import (
    MAX_DRAIN_S,
    MAX_GPUS_OF_A_POD,
    MAX_NAME_CHARS,
    MAX_REPLICAS,
    MAX_WAIT_S,
    may_be_a_list,
)


class Replicas(UserDocument):
    """How many serving pods."""

    min: int = Field(default=1, ge=1, le=MAX_REPLICAS)
    max: int = Field(default=1, ge=1, le=MAX_REPLICAS)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        return self


class Serving(UserDocument):
    """The section `serving`: replicas, GPUs, exposure and ends of the model's servers."""

    image: ImageName | None = Field(
        default=None, description="serving image on one node; the site's image for this engine when absent"
    )
    shape: str | None = Field(
        default=None,
        pattern=DNS_LABEL,
        max_length=MAX_NAME_CHARS,
        json_schema_extra=may_be_a_list,
        exclude_if=lambda shape: shape is None,  # pods of an older version read releases without it
        description="on CPU: which of the site's shapes the serving pods have; its serving.shape when absent; "
        "a list: a fleet",
    )
    replicas: Replicas = Replicas()
    autoscale: Autoscale | None = Field(
        default=None, description="how replicas follow the load; replicas.min pods serve when absent"
    )
    exposure: Literal["cluster", "ingress", "load-balancer"] = "cluster"
    ready_timeout_s: int = Field(
        default=600, ge=10, le=MAX_WAIT_S, description="how long a candidate may take to become ready"
    )
    drain_s: int | None = Field(
        default=None,
        ge=1,
        le=MAX_DRAIN_S,
        description="how long requests in flight may take when their server stops; "
        "gate.benchmark.request_timeout_s when absent",
    )
    connection_age_s: int = Field(
        default=60,
        ge=1,
        le=3600,
        description="how long a client may keep a connection before it is told to open another, which reaches the live "
        "release",
    )
    group: str | None = Field(
        default=None,
        pattern=DNS_LABEL,
        max_length=MAX_NAME_CHARS,
        description="server that this model shares with the others of its group; its own server when absent",
    )
    gpus: tuple[Annotated[int, Field(ge=0, lt=MAX_GPUS_OF_A_POD)], ...] = Field(
        default=(),
        max_length=MAX_GPUS_OF_A_POD,
        description="in a group: this model's GPUs among those of the server's pod, counted from 0",
    )

    @model_validator(mode="after")
    def _a_scaler_has_room_and_a_server_of_its_own(self) -> Self:
        if self.autoscale is None:
            return self
        if self.group is not None:
            raise ValueError(f"autoscale scales one model's server, and group {self.group} shares one: remove either")
        if self.replicas.max == self.replicas.min:
            raise ValueError(
                f"autoscale needs replicas.max above replicas.min, found {self.replicas.min} for both; they are its "
                "bounds"
            )
        return self

    @model_validator(mode="after")
    def _gpus_are_chosen_in_a_group_only(self) -> Self:
        if self.gpus and self.group is None:
            raise ValueError("gpus divides a server between the models of a group: remove gpus, or set group")
        if len(set(self.gpus)) != len(self.gpus):
            raise ValueError(f"gpus {list(self.gpus)} names a GPU twice")
        return self
