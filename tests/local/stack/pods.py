"""Pods that the stack's namespaces admit."""

NAMESPACE = "slipway"


def python_pod(name, code, *arguments, **container):
    """A pod that runs Python code; `container` is added to its one container."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    base = {
        "name": "base",
        "image": "slipway/tasks-cpu:dev",
        "command": ["python", "-c", code, *arguments],
        "securityContext": security,
    }
    spec = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [base | container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
