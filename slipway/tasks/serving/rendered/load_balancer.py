"""Settings of a Service behind a Network Load Balancer of AWS. Pure.

The annotations are those of the AWS Load Balancer Controller (docs/guide/service/annotations.md of
kubernetes-sigs/aws-load-balancer-controller).
"""

from typing import Any

from slipway.tasks.contracts.site.exposure import LoadBalancer, filled
from slipway.tasks.contracts.spec.spec import ReleaseSpec

AWS = "service.beta.kubernetes.io/aws-load-balancer-"


def service_values(asked: LoadBalancer | None, spec: ReleaseSpec) -> dict[str, Any]:
    """Template values of a Service behind a load balancer, where the site sets any."""
    if asked is None:
        return {"annotations": {}, "source_ranges": []}
    annotations = {f"{AWS}type": "external", f"{AWS}nlb-target-type": "ip", f"{AWS}scheme": asked.scheme}
    if asked.access_logs:
        logs = f"access_logs.s3.enabled=true,access_logs.s3.bucket={asked.access_logs.bucket}"
        prefix = f",access_logs.s3.prefix={asked.access_logs.prefix}" if asked.access_logs.prefix else ""
        annotations[f"{AWS}attributes"] = logs + prefix
    return {
        "annotations": annotations
        | {key: filled(value, spec.name, spec.drain_s) for key, value in asked.annotations.items()},
        "source_ranges": list(asked.source_ranges),
    }
