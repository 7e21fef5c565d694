"""Replicas that follow the load: what a spec asks for, and what a site has for it."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from slipway.tasks.contracts.base import UserDocument

ScalingMetric = Literal["queue_compute_ratio", "waiting_requests", "kv_cache_use", "request_rate", "requests_in_flight"]
"""What a scaler may compare with its target, as the average of the live release's pods."""

SERIES: dict[ScalingMetric, str] = {
    "queue_compute_ratio": "triton:queue_compute:ratio",
    "waiting_requests": "triton:waiting_requests:sum",
    "kv_cache_use": "triton:kv_cache_use:max",
    "request_rate": "triton:request_rate:max",
    "requests_in_flight": "front:requests_in_flight:sum",
}
"""Names of the Prometheus series, one sample per pod, which the rules of k8s_manifests/autoscaling record."""

COUNTED_BY_THE_FRONT: frozenset[ScalingMetric] = frozenset({"requests_in_flight"})
"""Metrics that the front of a pod exports, and not its server."""

MAX_TARGET = 1e6
MAX_STABILIZATION_S = 3600  # the HorizontalPodAutoscaler's own bound


class Autoscale(UserDocument):
    """Let the number of serving pods follow the load, between serving.replicas.min and max."""

    metric: ScalingMetric = Field(
        description="queue_compute_ratio: time in Triton's queue over time in the engine; waiting_requests: requests "
        "that the engine has not started; kv_cache_use: share of the KV cache, up to 1; request_rate: requests per "
        "second; requests_in_flight: requests that run or wait, a gRPC stream being one"
    )
    target: float = Field(ge=0.001, le=MAX_TARGET, description="what the average of the pods should be")
    stabilization_s: int = Field(
        default=300, ge=0, le=MAX_STABILIZATION_S, description="how long the load must be lower before pods are removed"
    )

    @model_validator(mode="after")
    def _a_share_is_below_one(self) -> Self:
        if self.metric == "kv_cache_use" and self.target >= 1:
            raise ValueError(f"kv_cache_use is a share, and {self.target:g} of the cache is never exceeded; e.g. 0.8")
        return self

    @property
    def counted_by_the_front(self) -> bool:
        """Whether pods need a front that exports what it counts."""
        return self.metric in COUNTED_BY_THE_FRONT


class Scaler(UserDocument):
    """What scales workloads at this site. Both read the series of k8s_manifests/autoscaling."""

    kind: Literal["hpa", "keda"] = Field(
        description="hpa: a HorizontalPodAutoscaler over prometheus-adapter; keda: a ScaledObject"
    )
    prometheus: str | None = Field(
        default=None,
        pattern=r"^https?://[!-~]+$",
        max_length=500,
        description="keda: address of Prometheus, e.g. http://prometheus.monitoring.svc:9090",
    )

    @field_validator("prometheus")
    @classmethod
    def _holds_no_password(cls, address: str | None) -> str | None:
        if address and "@" in address:
            raise ValueError("an address has no user or password")
        return address

    @model_validator(mode="after")
    def _keda_asks_prometheus_itself(self) -> Self:
        if (self.kind == "keda") is (self.prometheus is None):
            raise ValueError("prometheus is set for keda, which asks it; an hpa asks prometheus-adapter")
        return self
