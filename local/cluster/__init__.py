"""A development stand-in for a Kubernetes cluster. It is not a security boundary: a pod is a process of your own user.

One server speaks the Kubernetes API on 127.0.0.1 and runs each container as a local process under a small shim. The
shims outlive the server, and a restarted server takes their containers over. Linux only: every pod and every Service
has an address of its own in 127.0.0.0/8.

README.md beside this file lists what is implemented, what is recorded and never enforced, and what is refused. The
package imports nothing from the code around it, so it runs wherever it is copied.
"""

NOT_ENFORCED = (
    "not enforced by this cluster: NetworkPolicy, users and capabilities of containers, CPU limits, room on the node, "
    "PodDisruptionBudget, HorizontalPodAutoscaler, Ingress, Gateways without --gateway; the cluster's README has the "
    "whole list"
)
