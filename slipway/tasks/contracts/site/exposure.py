"""How clients outside the cluster reach a model: what a site has for it. A spec only names the way."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from slipway.tasks.contracts.base import DNS_LABEL, PRINTABLE, UserDocument
from slipway.tasks.contracts.kubernetes_text import LabelKey, Namespace, ObjectName

NAME, TIMEOUT = "{name}", "{timeout_s}"
"""Placeholders: the model's name, and how many seconds one of its requests may take."""
MAX_ANNOTATIONS, MAX_RANGES = 50, 100

HostPattern = Annotated[str, StringConstraints(pattern=r"^[a-z0-9{}_.-]+$", max_length=200)]
AnnotationValue = Annotated[str, StringConstraints(pattern=PRINTABLE, max_length=1000)]
Annotations = dict[LabelKey, AnnotationValue]


@dataclass(frozen=True)
class Split:
    """The share of the requests that a candidate gets beside the live release."""

    candidate_percent: int
    mirror_percent: int | None = None
    """Share of the live release's HTTP requests that are copied to the candidate; its answers are thrown away."""


def filled(text: str, name: str, timeout_s: int) -> str:
    """The text for one model."""
    return text.replace(NAME, name).replace(TIMEOUT, str(timeout_s))


class Gateway(UserDocument):
    """The Gateway that routes attach to, which an administrator made."""

    name: ObjectName
    namespace: Namespace | None = Field(default=None, description="the serving namespace when absent")
    listener: ObjectName | None = Field(default=None, description="name of one listener; all that fit when absent")


class Routes(UserDocument):
    """What serving.exposure ingress makes: an Ingress, or routes of the Gateway API."""

    kind: Literal["ingress", "gateway"]
    host: HostPattern = Field(description="host of a model's HTTP port, e.g. {name}.models.example.com")
    grpc_host: HostPattern | None = Field(
        default=None, description="host of its gRPC port, another one; gRPC is not routed when absent"
    )
    class_name: ObjectName | None = Field(default=None, description="ingress: the IngressClass")
    tls: bool = Field(
        default=True, description="ingress: with the certificate of Secret <model>-tls, which cert-manager can make"
    )
    annotations: Annotations = Field(
        default_factory=dict,
        max_length=MAX_ANNOTATIONS,
        description="of every Ingress or route; {name} is the model's name, {timeout_s} how long its requests may take",
    )
    grpc_annotations: Annotations = Field(
        default_factory=dict, max_length=MAX_ANNOTATIONS, description="of the one for gRPC, besides"
    )
    gateway: Gateway | None = Field(default=None, description="gateway: the Gateway that routes attach to")

    @field_validator("host", "grpc_host")
    @classmethod
    def _every_model_has_its_own(cls, host: str | None) -> str | None:
        if host is not None and (NAME not in host or set("{}_") & set(host.replace(NAME, ""))):
            raise ValueError(f"a host has {NAME} once for the model's name, such as {NAME}.models.example.com")
        return host

    @model_validator(mode="after")
    def _each_kind_has_what_it_needs(self) -> Self:
        if self.host == self.grpc_host:
            raise ValueError("host and grpc_host are two hosts: a host has one protocol")
        if (self.kind == "gateway") is (self.gateway is None):
            raise ValueError("gateway is set for kind gateway, and only there")
        if self.kind == "gateway" and self.class_name:
            raise ValueError("class_name is an Ingress's; a Gateway has its own class")
        return self

    def shared_with(self, name: str) -> str | None:
        """Another model whose gRPC would have the host of this model's HTTP; None if none could."""
        if self.grpc_host is None:
            return None
        before, _, after = self.grpc_host.partition(NAME)
        host = self.host.replace(NAME, name)
        if not (host.startswith(before) and host.endswith(after)):
            return None
        other = host[len(before) : len(host) - len(after)]
        return other if re.fullmatch(DNS_LABEL, other) else None


class AccessLogs(UserDocument):
    """Where a load balancer writes its access logs."""

    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$", max_length=200)


class LoadBalancer(UserDocument):
    """Settings of the Network Load Balancers that the AWS Load Balancer Controller makes."""

    scheme: Literal["internal", "internet-facing"] = "internal"
    source_ranges: tuple[Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f.:]+/[0-9]{1,3}$")], ...] = Field(
        default=(), max_length=MAX_RANGES, description="address ranges of clients; every client when absent"
    )
    access_logs: AccessLogs | None = Field(default=None, description="only of listeners with TLS, as AWS has it")
    annotations: Annotations = Field(
        default_factory=dict,
        max_length=MAX_ANNOTATIONS,
        description="others of the controller; {name} and {timeout_s} as in routes",
    )
