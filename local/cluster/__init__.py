"""A development stand-in for a Kubernetes cluster. It is no security boundary: a pod is a process of your own user.

One server speaks the Kubernetes API on 127.0.0.1 and runs each container as a local process under a small shim. The
shims outlive the server, and a restarted server takes their containers over. Linux only: every pod and every Service
has an own address in 127.0.0.0/8.

Refused with a 422 that says why, because ignoring it would change what a pod means: extended resources such as
nvidia.com/gpu, hostPath and other volumes of a node or a vendor, host namespaces, hostPort, hostAliases, privileged,
raw block devices, sidecar init containers, the airflow-xcom-sidecar, postStart hooks, stopSignal, gRPC probes and grace
periods of probes, stdin, tty, subPathExpr, resourceFieldRef in files, host names and DNS settings of a pod, resources
of a whole pod, runtimeClassName, other nodes and schedulers; UDP Services, node ports, session affinity and external
addresses of Services. exec, attach and port-forward answer 405.

Recorded and never enforced: securityContext (users, groups, capabilities, seccompProfile, readOnlyRootFilesystem,
allowPrivilegeEscalation), hostUsers, CPU requests and limits, memory requests, emptyDir sizeLimit and medium, readOnly
and mountPropagation of mounts (a process may write wherever its user may), tolerations, affinity, topology spread,
priorities, dnsPolicy (names are resolved as this machine does), enableServiceLinks (no variables of Services are
given), imagePullPolicy, imagePullSecrets, os, resizePolicy; a Service's type LoadBalancer and ExternalName, its address
families and traffic policies; roles and bindings, network policies, resource quotas, limit ranges, disruption budgets,
horizontal autoscalers. Mounted ConfigMaps and Secrets keep the content of the pod's start. There is no cluster DNS:
address a Service by its clusterIP. Server-side apply merges and tracks no field owners.
The memory limit is enforced by looking at the process tree twice a second, where /proc exists.
"""
