"""The configuration of the Gateways' Envoy: listeners, clusters, endpoints and routes as xDS resources. Pure.

https://www.envoyproxy.io/docs/envoy/v1.40.0/api-v3/config/route/v3/route_components.proto and its neighbours
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..objects.resources import GRPC_ROUTES
from .gateway_routes import Attached, rules

TYPES = "type.googleapis.com/envoy"
HTTP_MANAGER = f"{TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = f"{TYPES}.extensions.filters.http.router.v3.Router"
UPSTREAM_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
LISTENERS, CLUSTERS, ROUTES = "lds.json", "cds.json", "rds.json"
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
RETRIES = {"retry_on": "connect-failure,refused-stream,reset-before-request", "num_retries": 2}
"""A connection that a pod closed just before the next request is no failure of a client, as with other gateways."""

Address = tuple[str, int]
Backend = tuple[str, str, int, bool]
"""Namespace, Service and port, and whether requests are gRPC."""


def bootstrap(folder: Path) -> dict[str, Any]:
    """Where Envoy finds the rest, which it reads again when it is replaced."""
    return {
        "node": {"id": "gateway", "cluster": "gateway"},
        "admin": {"address": {"pipe": {"path": "admin.sock", "mode": 0o600}}},
        "dynamic_resources": {"lds_config": _file(folder / LISTENERS), "cds_config": _file(folder / CLUSTERS)},
    }


def response(version: str, resources: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The content of a file of resources."""
    return {"version_info": version, "resources": list(resources)}


def listener(address: Address, folder: Path) -> dict[str, Any]:
    """A port, with the routes of the file of the same name."""
    name = f"port-{address[1]}"
    manager = {
        "@type": HTTP_MANAGER,
        "stat_prefix": name,
        "codec_type": "AUTO",
        "stream_idle_timeout": "0s",
        "rds": {"route_config_name": name, "config_source": _file(folder / f"{name}.{ROUTES}")},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
    }
    network = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    return {
        "@type": f"{TYPES}.config.listener.v3.Listener",
        "name": name,
        "address": {"socket_address": {"address": address[0], "port_value": address[1]}},
        "filter_chains": [{"filters": [network]}],
    }


def cluster(backend: Backend, folder: Path) -> dict[str, Any]:
    """A port of a Service; its pods are in a file of their own."""
    name, is_grpc = cluster_name(backend), backend[3]
    upstream: dict[str, Any] = {"http2_protocol_options": {}} if is_grpc else {"http_protocol_options": {}}
    options = {"@type": f"type.googleapis.com/{UPSTREAM_OPTIONS}", "explicit_http_config": upstream}
    return {
        "@type": f"{TYPES}.config.cluster.v3.Cluster",
        "name": name,
        "type": "EDS",
        "connect_timeout": "5s",
        "eds_cluster_config": {"eds_config": _file(folder / f"{name}.json")},
        "circuit_breakers": {
            "thresholds": [{"max_connections": 1000000, "max_pending_requests": 1000000, "max_requests": 1000000}]
        },
        "typed_extension_protocol_options": {UPSTREAM_OPTIONS: options},
    }


def endpoints(backend: Backend, addresses: Iterable[Address]) -> dict[str, Any]:
    """The pods behind a port of a Service."""
    found = [
        {"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}} for host, port in addresses
    ]
    return {
        "@type": f"{TYPES}.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster_name(backend),
        "endpoints": [{"lb_endpoints": found}],
    }


def routes(port: int, attached: Iterable[Attached], known: frozenset[Backend]) -> dict[str, Any]:
    """The routes of a port, by host.

    A rule without a `known` Service is answered with 500; the share of a Service that is not known, beside one that is,
    with 503, where the Gateway API asks for 500.
    """
    by_host: dict[str, list[Attached]] = {}
    for one in attached:
        for host in one.hosts:
            by_host.setdefault(host, []).append(one)
    hosts = [
        {
            "name": host,
            "domains": [host],
            "routes": [_route(one, rule, match, known) for one, rule, match in rules(here)],
        }
        for host, here in sorted(by_host.items())
    ]
    kind = f"{TYPES}.config.route.v3.RouteConfiguration"
    return {"@type": kind, "name": f"port-{port}", "virtual_hosts": hosts, "ignore_port_in_host_matching": True}


def backend_of(attached: Attached, reference: dict[str, Any]) -> Backend:
    """What a reference to a Service in a route means."""
    is_grpc = attached.route["kind"] == GRPC_ROUTES.kind
    return attached.route["metadata"]["namespace"], reference["name"], reference["port"], is_grpc


def cluster_name(backend: Backend) -> str:
    """A name that is a file name too."""
    namespace, service, port, is_grpc = backend
    return f"{namespace}.{service}.{port}.{'grpc' if is_grpc else 'http'}"


def _route(one: Attached, rule: dict[str, Any], match: dict[str, Any], known: frozenset[Backend]) -> dict[str, Any]:
    weights = [(backend_of(one, each), each["weight"]) for each in rule.get("backendRefs") or [] if each["weight"]]
    matched = _match(one, match)
    if not known & {backend for backend, _ in weights}:
        return {"match": matched, "direct_response": {"status": 500}}
    action: dict[str, Any] = {
        "weighted_clusters": {
            "clusters": [{"name": cluster_name(backend), "weight": weight} for backend, weight in weights]
        },
        "retry_policy": RETRIES,
    }
    if request := (rule.get("timeouts") or {}).get("request"):
        action["timeout"] = f"{_seconds(request):g}s"
    mirrors = [each["requestMirror"] for each in rule.get("filters") or []]
    if mirrors:
        action["request_mirror_policies"] = [
            _mirror(one, each) for each in mirrors if backend_of(one, each["backendRef"]) in known
        ]
    return {"match": matched, "route": action}


def _mirror(one: Attached, mirror: dict[str, Any]) -> dict[str, Any]:
    share = {"numerator": mirror.get("percent", 100), "denominator": "HUNDRED"}
    return {
        "cluster": cluster_name(backend_of(one, mirror["backendRef"])),
        "runtime_fraction": {"default_value": share},
        "disable_shadow_host_suffix_append": True,
    }


def _match(one: Attached, match: dict[str, Any]) -> dict[str, Any]:
    if one.route["kind"] == GRPC_ROUTES.kind:
        found: dict[str, Any] = {**_grpc_path(match.get("method") or {}), "grpc": {}}
    else:
        found = _path(match.get("path") or {"type": "PathPrefix", "value": "/"})
    headers = [{"name": each["name"], "string_match": _text(each)} for each in match.get("headers") or []]
    if isinstance(match.get("method"), str):
        headers.append({"name": ":method", "string_match": {"exact": match["method"]}})
    return found | ({"headers": headers} if headers else {})


def _path(path: dict[str, Any]) -> dict[str, Any]:
    value = path["value"]
    if path["type"] == "Exact":
        return {"path": value}
    if path["type"] == "RegularExpression":
        return {"safe_regex": {"regex": value}}
    return {"prefix": "/"} if value == "/" else {"path_separated_prefix": value.rstrip("/")}


def _grpc_path(method: dict[str, str]) -> dict[str, Any]:
    service, name = method.get("service"), method.get("method")
    if service and name:
        return {"path": f"/{service}/{name}"}
    if name:
        return {"safe_regex": {"regex": f"/[^/]+/{name}"}}
    return {"prefix": f"/{service}/" if service else "/"}


def _text(header: dict[str, str]) -> dict[str, Any]:
    regex = header["type"] == "RegularExpression"
    return {"safe_regex": {"regex": header["value"]}} if regex else {"exact": header["value"]}


def _seconds(duration: str) -> float:
    return sum(int(number) * SECONDS[unit] for number, unit in re.findall(r"(\d+)(h|ms|m|s)", duration))


def _file(path: Path) -> dict[str, Any]:
    return {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}
