"""The kinds that the server knows, and their paths."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    """One kind; `subresources` are those whose GET, PUT and PATCH use the object itself."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    has_status: bool = False
    has_scale: bool = False
    in_all: bool = False

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages of the API server."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def path(self) -> str:
        """The path of its group and version, without a leading slash."""
        return f"apis/{self.group}/{self.version}" if self.group else f"api/{self.version}"


RBAC = "rbac.authorization.k8s.io"

PODS = Resource("", "v1", "pods", "Pod", short_names=("po",), has_status=True, in_all=True)
SERVICES = Resource("", "v1", "services", "Service", short_names=("svc",), has_status=True, in_all=True)
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints", short_names=("ep",))
EVENTS = Resource("", "v1", "events", "Event", short_names=("ev",))
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",))
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), has_status=True)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",), has_status=True)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, short_names=("no",), has_status=True)
DEPLOYMENTS = Resource(
    "apps", "v1", "deployments", "Deployment", short_names=("deploy",), has_status=True, has_scale=True, in_all=True
)
REPLICA_SETS = Resource(
    "apps", "v1", "replicasets", "ReplicaSet", short_names=("rs",), has_status=True, has_scale=True, in_all=True
)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", short_names=("quota",), has_status=True)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", short_names=("limits",))
ROLES = Resource(RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)

GATEWAY_API = "gateway.networking.k8s.io"
GATEWAYS = Resource(GATEWAY_API, "v1", "gateways", "Gateway", short_names=("gtw",), has_status=True)
HTTP_ROUTES = Resource(GATEWAY_API, "v1", "httproutes", "HTTPRoute", has_status=True)
GRPC_ROUTES = Resource(GATEWAY_API, "v1", "grpcroutes", "GRPCRoute", has_status=True)
ROUTED = (GATEWAYS, HTTP_ROUTES, GRPC_ROUTES)

RECORDS = (
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",)),
    Resource("networking.k8s.io", "v1", "ingresses", "Ingress", short_names=("ing",), has_status=True),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short_names=("pdb",), has_status=True),
    Resource(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        short_names=("hpa",),
        has_status=True,
    ),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short_names=("pc",)),
)

RESOURCES = (
    PODS,
    SERVICES,
    ENDPOINTS,
    EVENTS,
    SECRETS,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    CLAIMS,
    NAMESPACES,
    NODES,
    DEPLOYMENTS,
    REPLICA_SETS,
    ENDPOINT_SLICES,
    LEASES,
    QUOTAS,
    LIMIT_RANGES,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    *ROUTED,
    *RECORDS,
)


def find(path: str, plural: str) -> Resource | None:
    """The kind served at `path` (`api/v1`, `apis/apps/v1`) under `plural`."""
    return next((resource for resource in RESOURCES if resource.path == path and resource.plural == plural), None)
