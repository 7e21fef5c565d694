"""The front of a serving pod: an Envoy that takes connections for Triton and closes them without losing a request.

Triton cannot: its HTTP server never sends `Connection: close`, and it unloads its models before it closes gRPC
(docs/decisions/0015-a-front-that-closes-connections.md).
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from operator import itemgetter
from pathlib import Path
from typing import Any

from slipway.tasks.contracts.api_keys import CLIENT_HEADER, SUBJECT_PREFIX, subject_name
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.authentication import KEYS_FILE, Quota, TokenIssuer
from slipway.tasks.contracts.site.site import ServingSite, Site
from slipway.tasks.serving.openai_api.generation.grammar_budget import BUDGET, TRANSLATORS
from slipway.tasks.serving.rendered import front_keys, front_routes
from slipway.tasks.serving.rendered import templates as template_files
from slipway.tasks.serving.rendered.commands import PORTS, TRITON_PORTS
from slipway.tasks.serving.rendered.front_routes import Limits

SOCKET = "/run/front/admin.sock"
"""The front's admin interface. It may do anything, so only the pod's own containers can reach it."""
OPENAI_SOCKET = "openai.sock"
"""Where OpenAI's API listens, in the folder of SOCKET: no port of the pod, so only its own containers reach it."""
MOST_PROCESSES, CPUS_PER_PROCESS = 4, 4
"""Processes of OpenAI's API: one for that many CPUs of the server, so that a large server has not one for all its
streams, and a small one does not share its CPUs out (docs/decisions/0022)."""
PROCESS_CPU_M, PROCESS_MIB, PROCESS_MOST_MIB = 100, 128, 512 + TRANSLATORS * (24 + (BUDGET.memory_bytes >> 20))
"""What each of them requests, in thousandths of a CPU and MiB, and the most memory that it may use: its own, and
that of the processes that translate schemas, of which each program takes 24."""
LEAVE_S = 10
"""Time from the start of a pod's termination until its front refuses connections. Meanwhile Services remove the pod,
and every client that sends a request is told to close its connection."""
STATS_PORT = 8003
"""Port of the metrics of the front and of OpenAI's API, where a scaler or telemetry.metrics asks for them."""
STATS_PAGE = "/stats/prometheus?filter=^http.*downstream_rq_(active|.xx|time$)|^slipway&client="
"""What that port shows of the admin interface. A client's own query is appended, and of two filters Envoy takes the
first."""
PROBE_PORT = 8004
"""Port of the probes: whether the front and OpenAI's API make progress. The limits of clients do not count there: a pod
that is busy is ready, and alive."""
PROBES = 16
"""Probes in flight at once."""
MEMORY_MIB = 512
"""The most memory that the front may use."""
HEAP_BYTES = MEMORY_MIB * 4 // 5 << 20
"""The most that it may hold of requests and answers; beyond, it resets the largest streams."""
CONNECTIONS = 4096
"""Connections of clients at once, HTTP and gRPC together: an idle one takes about 30 KiB."""
MOST_ARGUMENT_BYTES = 120_000
"""Linux takes 131,072 of one argument (MAX_ARG_STRLEN), and a bind_address becomes longer in the pod."""
UNLIMITED_TOKENS = 1_000_000_000
"""Tokens a minute of a key whose quota names none."""
HEADERS_S, UPLOAD_S = 10, 60
"""How long a client may take to send the headers of a request, and over HTTP all of it."""
HTTP_IDLE_S = 660
"""Time until an idle HTTP connection is closed. Of the load balancers that may be in front of a pod, Google's keeps its
connections longest: 600 s, which no setting changes (cloud.google.com/load-balancing/docs/https, timeouts)."""
WINDOW_BYTES = 256 << 10
"""What a gRPC stream may send ahead of what Triton has read; a connection four times that."""
DEFAULT_LIMITS = Limits(body_bytes=384 << 10, openai_bytes=1152 << 10, requests=450)
"""Limits of a model of 2,048 tokens in the memory of the laptop's servers."""
TRITON_ERROR = {"error": "%LOCAL_REPLY_BODY%"}
OPENAI_ERROR = {"message": "%LOCAL_REPLY_BODY%", "type": "invalid_request_error", "param": None, "code": None}
OPENAI_TOO_LARGE = {**OPENAI_ERROR, "code": "context_length_exceeded"}
OPENAI_UNAVAILABLE = {**OPENAI_ERROR, "type": "service_unavailable", "code": "unavailable"}
OPENAI_WRONG_KEY = {**OPENAI_ERROR, "code": "invalid_api_key"}
OPENAI_OVER_QUOTA = {**OPENAI_ERROR, "type": "requests", "code": "rate_limit_exceeded"}
ANTHROPIC_ERROR = {"type": "api_error", "message": "%LOCAL_REPLY_BODY%"}
ANTHROPIC_TOO_LARGE = {**ANTHROPIC_ERROR, "type": "request_too_large"}
ANTHROPIC_WRONG_KEY = {**ANTHROPIC_ERROR, "type": "authentication_error"}
ANTHROPIC_OVER_QUOTA = {**ANTHROPIC_ERROR, "type": "rate_limit_error"}
"""Bodies of the front's own answers, in the form of Triton, OpenAI's API and Anthropic's (serving/openai_api).
Envoy fills in its text, escaped."""
ORIGINS_ANSWER = {
    "allow_methods": "GET, POST, OPTIONS",
    "allow_headers": "authorization, *",
    "expose_headers": "x-request-id, retry-after",
    "max_age": "600",
}
"""What a browser is told that asks. `*` is not authorization (https://fetch.spec.whatwg.org/#http-cors); Chromium
remembers an answer for two hours at most."""
TOO_LARGE = "the request is larger than this model's longest prompt needs"
COMPRESSED = "requests must not be compressed: remove Content-Encoding"
NOT_SERVED = "not served here: clients may ask for health, metadata, config, stats, infer, generate, generate_stream"
GRPC_IDLE_S, GOAWAY_S = 4, 3
"""Time until an idle gRPC connection is sent GOAWAY, and from then until it is closed. Their sum is less than LEAVE_S,
so that no idle connection is left when the front ends."""


@dataclass(frozen=True)
class Access:
    """Who may ask, and how often."""

    keys: bool = False
    """Whether every request needs an API key."""
    quotas: tuple[tuple[str, int], ...] = ()
    """Requests a minute by name of keys; `*` is for each other name."""
    origins: tuple[str, ...] = ()
    """Origins whose pages may use OpenAI's API."""
    jwt: TokenIssuer | None = None
    """Whose tokens are taken beside keys."""
    counts_tokens: bool = False
    """Whether some quota is one of tokens."""


def values(
    site: Site,
    folder: Path,
    *,
    models: Sequence[str],
    cpu: str,
    connection_age_s: int,
    drain_s: int,
    limits: Limits,
    counted: bool = False,
) -> dict[str, Any]:
    """Template values of the front's container, of OpenAI's API behind it, and of the hook that ends the front.

    Args:
        site: the site.
        folder: the templates.
        models: names of the pod's models.
        cpu: CPUs of the server, as Kubernetes writes them.
        connection_age_s: age at which a client is told to open another connection.
        drain_s: how long requests in flight may take when the server stops.
        limits: what the front lets through at most.
        counted: whether a scaler asks how many requests are in flight.
    """
    stats_port = STATS_PORT if counted or site.telemetry.metrics else None
    sockets, serving = openai_sockets(cpu), site.serving
    access, quotas = _access(serving), _quotas(serving)
    sharing = 1 if access.counts_tokens else len(sockets)  # else one process has all requests of a name
    return {
        "triton_ports": TRITON_PORTS,
        "front": {
            "image": site.images.front,
            "config": config(
                serving.bind_address,
                connection_age_s,
                folder,
                stats_port,
                sockets,
                limits,
                access,
            ),
            "keys": _keys_volume(serving),
            "stats_port": stats_port,
            "probe_port": PROBE_PORT,
            "memory": f"{MEMORY_MIB}Mi",
            "drain": drain_command(drain_s),
        },
        "openai": {
            "sockets": list(sockets),
            "cpu": f"{PROCESS_CPU_M * len(sockets)}m",
            "memory": f"{PROCESS_MIB * len(sockets)}Mi",
            "memory_limit": f"{PROCESS_MOST_MIB * len(sockets)}Mi",
            "triton_host": _local_address(serving.bind_address),
            "models": list(models),
            "logs": site.telemetry.logs,
            "has_keys": access.keys,
            "turns": f"{-(-limits.batch // sharing)}/{limits.requests // sharing}",
            "tokens_per_minute": [(name, each.tokens_per_minute or UNLIMITED_TOKENS) for name, each in quotas],
        },
    }


@functools.cache
def config(
    bind_address: str,
    connection_age_s: int,
    folder: Path,
    stats_port: int | None = None,
    sockets: tuple[str, ...] = (OPENAI_SOCKET,),
    limits: Limits = DEFAULT_LIMITS,
    access: Access | None = None,
) -> str:
    """Envoy's bootstrap as JSON, which its --config-yaml takes. Without `access`, everybody may ask.

    Raises:
        InputError: it is longer than an argument may be.
    """
    access = access or Access()
    named = [name for name, _ in access.quotas]
    text = template_files.text(
        folder,
        "front_config.yaml.j2",
        {
            "bind_address": bind_address,
            "upstream": _local_address(bind_address),
            "ports": PORTS,
            "triton_ports": TRITON_PORTS,
            "openai_sockets": sockets,
            "connection_age_s": connection_age_s,
            "stats_port": stats_port,
            "stats_page": STATS_PAGE,
            "grpc_idle_s": GRPC_IDLE_S,
            "http_idle_s": HTTP_IDLE_S,
            "goaway_s": GOAWAY_S,
            "probe_port": PROBE_PORT,
            "probes": PROBES,
            "limits": limits,
            "heap_bytes": HEAP_BYTES,
            "connections": CONNECTIONS,
            "headers_s": HEADERS_S,
            "upload_s": UPLOAD_S,
            "window_bytes": WINDOW_BYTES,
            "http_routes": front_routes.HTTP_ROUTES,
            "grpc_paths": front_routes.GRPC_PATHS,
            "json_guard": front_routes.json_guard(),
            "grpc_guard": front_routes.grpc_guard(limits.body_bytes, TOO_LARGE),
            "http_keys": front_keys.http_guard(named) if access.keys else None,
            "grpc_keys": front_keys.grpc_guard(named) if access.keys else None,
            "metadata": front_keys.METADATA,
            "client": front_keys.CLIENT,
            "origins": access.origins,
            "quotas": front_keys.request_quotas(access.quotas) if access.quotas else None,
            "client_header": CLIENT_HEADER,
            "counts_tokens": access.counts_tokens,
            "tokens": front_keys.token_check(access.jwt) if access.jwt else None,
            "jwks": front_keys.jwks_cluster(access.jwt.jwks_uri) if access.jwt else None,
            "over_quota": front_keys.OVER_QUOTA,
            "openai_over_quota": {"error": OPENAI_OVER_QUOTA},
            "anthropic_over_quota": {"type": "error", "error": ANTHROPIC_OVER_QUOTA},
            "origins_answer": ORIGINS_ANSWER,
            "access_log": front_keys.ACCESS_LOG,
            "counter": front_keys.COUNTER,
            "counter_scope": front_keys.COUNTER_SCOPE,
            "openai_wrong_key": {"error": OPENAI_WRONG_KEY},
            "anthropic_wrong_key": {"type": "error", "error": ANTHROPIC_WRONG_KEY},
            "too_large": TOO_LARGE,
            "compressed": COMPRESSED,
            "not_served": NOT_SERVED,
            "triton_error": TRITON_ERROR,
            "openai_error": {"error": OPENAI_ERROR},
            "openai_too_large": {"error": OPENAI_TOO_LARGE},
            "openai_unavailable": {"error": OPENAI_UNAVAILABLE},
            "anthropic_error": {"type": "error", "error": ANTHROPIC_ERROR},
            "anthropic_too_large": {"type": "error", "error": ANTHROPIC_TOO_LARGE},
        },
    )
    (document,) = template_files.parsed(text)
    return _argument(json.dumps(document, separators=(",", ":"), sort_keys=True))


def _argument(text: str) -> str:
    if len(text.encode()) > MOST_ARGUMENT_BYTES:
        raise InputError(
            "the front's configuration is too long",
            found=f"{len(text.encode())} bytes",
            expected=f"at most {MOST_ARGUMENT_BYTES}, which an argument of a process may have",
            remedy="Name fewer serving.authentication.quotas: `*` is for each other name. Or fewer browser_origins.",
        )
    return text


def _access(serving: ServingSite) -> Access:
    requests = tuple(
        (name, each.requests_per_minute or front_keys.UNLIMITED_REQUESTS) for name, each in _quotas(serving)
    )
    origins = tuple(serving.browser_origins)
    if serving.authentication == "none":
        return Access(origins=origins)
    counts_tokens = any(each.tokens_per_minute for _, each in _quotas(serving))
    return Access(True, requests, origins, serving.authentication.jwt, counts_tokens)


def _quotas(serving: ServingSite) -> list[tuple[str, Quota]]:
    """By the names that the front gives to clients."""
    given = {} if serving.authentication == "none" else serving.authentication.quotas
    return sorted(((_client_name(name), quota) for name, quota in given.items()), key=itemgetter(0))


def _client_name(name: str) -> str:
    subject = name.removeprefix(SUBJECT_PREFIX)
    return name if subject == name else subject_name(subject)


def _keys_volume(serving: ServingSite) -> dict[str, Any] | None:
    """Template values of the Secret with the hashes of the keys; None where none is needed."""
    if serving.authentication == "none":
        return None
    return {
        "secret": serving.authentication.keys_secret,
        "folder": front_keys.FOLDER,
        "variable": front_keys.VARIABLE,
        "file": f"{front_keys.FOLDER}/{KEYS_FILE}",
    }


def openai_sockets(cpu: str) -> tuple[str, ...]:
    """A socket for each process of OpenAI's API beside a server with these CPUs; `cpu` as Kubernetes writes it."""
    cpus = float(cpu.removesuffix("m")) / (1000 if cpu.endswith("m") else 1)
    count = min(MOST_PROCESSES, max(1, int(cpus) // CPUS_PER_PROCESS))
    return (OPENAI_SOCKET, *(f"openai-{number}.sock" for number in range(2, count + 1)))


def drain_command(drain_s: int) -> list[str]:
    """The command of a server's preStop hook; see slipway/tasks/serving/pod/drain.py."""
    return [
        "python",
        "-m",
        "slipway.tasks",
        "drain",
        f"--front={SOCKET}",
        f"--leave-s={LEAVE_S}",
        f"--requests-s={drain_s}",
    ]


def _local_address(bind_address: str) -> str:
    """The address at which the same pod reaches a server on `bind_address`, which may be `$(POD_IP)`."""
    try:
        address = ip_address(bind_address)
    except ValueError:
        return bind_address
    if not address.is_unspecified:
        return bind_address
    return "127.0.0.1" if address.version == 4 else "::1"  # noqa: PLR2004 - an IP version
