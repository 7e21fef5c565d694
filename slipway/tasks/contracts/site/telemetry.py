"""What a site exports about itself: metrics of every serving pod, traces of runs, and the form of log lines."""

from typing import Literal

from pydantic import Field, field_validator

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.kubernetes_text import ObjectName

TRACES_PATH = "/v1/traces"
"""Appended to a collector's endpoint (OTLP 1.9, OTLP/HTTP Request)."""
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
"""Variable of a step's process, and key of `headers_secret`."""


class Traces(UserDocument):
    """The collector that spans are sent to, and how."""

    endpoint: str = Field(
        pattern=r"^https?://[!-~]+$",
        max_length=500,
        description="base address of a collector that accepts OTLP over HTTP, e.g. http://collector.monitoring.svc:4318",
    )
    sample_ratio: float = Field(default=1.0, ge=0, le=1, description="share of the runs, and of requests to Triton")
    headers_secret: ObjectName | None = Field(
        default=None, description=f"Secret of the pipeline namespace whose key {HEADERS_VARIABLE} authenticates steps"
    )
    triton: bool = Field(default=False, description="Triton exports a trace of sampled requests as well")

    @field_validator("endpoint")
    @classmethod
    def _is_a_base_address(cls, address: str) -> str:
        if "@" in address or "," in address or "?" in address:
            raise ValueError("an endpoint has no user, password or query; headers_secret holds what authenticates")
        if address.rstrip("/").endswith(TRACES_PATH):
            raise ValueError(f"{TRACES_PATH} is appended to an endpoint; leave it out")
        return address.rstrip("/")


class Telemetry(UserDocument):
    """What this site exports besides Triton's own metrics. Off unless it is set."""

    metrics: bool = Field(
        default=False,
        description="the front and the OpenAI API of every serving pod export metrics, and Triton the time to a "
        "request's first response; changing it changes the pods of the next roll-out",
    )
    traces: Traces | None = Field(default=None, description="OpenTelemetry traces; none when absent")
    logs: Literal["text", "json"] = Field(
        default="text", description="form of the log lines of steps and sidecars: text, or one JSON object per line"
    )

    @property
    def triton_traces(self) -> Traces | None:
        """The collector of Triton's own traces, where the site wants them."""
        return self.traces if self.traces and self.traces.triton else None
