"""Command lines of servers: one tritonserver, one per GPU of a pod, one per GPU of several nodes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipway.tasks.contracts.site.telemetry import TRACES_PATH, Traces
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.serving.rendered.paths import REPOSITORY_ROOT

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
"""Ports of a serving pod, by protocol: what its Services send connections to."""
TRITON_PORTS = {"http": 9000, "grpc": 9001, "metrics": PORTS["metrics"]}
"""Ports of Triton in the pod. The pod's front answers HTTP and gRPC for it; metrics are Triton's own."""
RANKED_MODEL_SUFFIX = "_tensorrt_llm"
"""Suffix of the one model in a trt-engine's repository that holds the engine (model_repository_templates/trt-engine).
Ranks above 0 load nothing else, as in triton_backend/scripts/launch_triton_server.py of TensorRT-LLM 1.2."""

TRITON = "tritonserver"
MPIRUN = "mpirun"
SSH = "ssh"
CONTROL_HEADER = "slipway-model-control"
"""Header that a request of an administrator would need. Slipway sends none."""
ADMINISTRATION = ("shared-memory", "logging", "trace", "model-repository")
"""What Triton keeps for its administrator. The front does not let it through either (front_routes.py)."""
SSH_PORT = 2222
"""Port of the workers' sshd, which does not run as root."""
KILL_AFTER_S = 5
"""Time that Open MPI 4.1 waits before it sends SIGTERM to the ranks, and again before SIGKILL
(odls_base_sigkill_timeout, open-mpi/ompi#7033; 1 s by default)."""


def end_s(nodes: int) -> int:
    """Maximum seconds from SIGTERM to mpirun until it and every rank have ended.

    Open MPI 4.1.8 ends the ranks of its own node first, and then those of all other nodes together
    (tests/local/serving/models/test_ranks_over_nodes.py).
    """
    one_node = 2 * KILL_AFTER_S
    return one_node if nodes == 1 else 2 * one_node


FORWARDED = ("PATH", "LD_LIBRARY_PATH", "HOME", "OPAL_PREFIX", "CUDA_HOME")
FORWARDED_PREFIXES = ("NCCL_", "FI_", "UCX_", "TRTLLM_", "TLLM_")
"""Environment of the leader that ranks on other nodes need: a remote shell starts without the container's own."""


@dataclass(frozen=True)
class Server:
    """Settings of a server, however it is started."""

    bind_address: str
    exit_timeout_s: int
    shared_memory_prefix: str
    """Unique among the servers that see the same /dev/shm: Triton's Python backend names its regions after it."""
    repository: str = REPOSITORY_ROOT
    ports: Mapping[str, int] = field(default_factory=lambda: dict(TRITON_PORTS))
    """By protocol, as in PORTS; a protocol without a port is switched off."""
    ranked_model: str | None = None
    """The model that every rank loads, where there are ranks."""
    unloads_models: bool = False
    """Whether a model may unload itself, which Triton allows in explicit model control only."""
    control_key: str = "$(POD_UID)"
    """What an administrator would have to know; by default, what Kubernetes alone knows beforehand."""
    launcher: str | None = None
    """Program that each rank on several nodes starts with, where only rank 0 is a tritonserver."""
    program: tuple[str, ...] = ()
    """What every rank on several nodes runs in place of a server."""
    completes_configs: bool = False
    """Whether Triton completes each config.pbtxt. It then starts every model twice, the first time only to ask it."""
    latency_histograms: bool = False
    """Whether Triton exports how long requests wait for their first response."""

    traces: Traces | None = None
    """The collector that Triton sends traces of requests to."""


def server_of(spec: ReleaseSpec, server: Server) -> Server:
    """Settings of a server that one release has to itself."""
    traits = spec.engine.traits
    ranked = traits.server_per_rank and spec.engine.ranks > 1
    return replace(
        server,
        ranked_model=f"{spec.name}{RANKED_MODEL_SUFFIX}" if ranked else None,
        unloads_models=traits.unloads_dead_engine,
        launcher=traits.rank_launcher,
        completes_configs=traits.completes_configs,
    )


def in_a_pod(server: Server, ranks: int) -> list[str]:
    """The command of a pod that has all of the server's GPUs."""
    return single(server) if server.ranked_model is None else ranks_in_a_pod(server, ranks)


def single(server: Server) -> list[str]:
    """The command of one server, which answers HTTP, gRPC and metrics."""
    words = (*_repository(server), *_listening(server), *_model_control(server))
    return [TRITON, *words, *_common(server, server.shared_memory_prefix)]


def rank(server: Server, number: int) -> list[str]:
    """The command of rank `number`. Only rank 0 is reached from outside; the others hold their share of the engine."""
    own_model = ("--model-control-mode=explicit", f"--load-model={server.ranked_model}")
    role = (*_listening(replace(server, ports={})), *own_model) if number else _listening(server)
    return [TRITON, *_repository(server), *role, *_common(server, f"{server.shared_memory_prefix}-rank{number}-")]


def ranks_in_a_pod(server: Server, ranks: int) -> list[str]:
    """One server per GPU of the pod, started by mpirun, which is the container's own process."""
    return [MPIRUN, *_mpi_options(), *_contexts(server, ranks)]


def ranks_on_nodes(
    server: Server,
    addresses: Sequence[str],
    ranks_per_node: int,
    *,
    mpirun: Path,
    ssh_options: Sequence[str],
    environment: Mapping[str, str],
) -> list[str]:
    """One rank per GPU of every node, started by mpirun in the leader's pod: a server each, or one with its workers.

    `-x` reaches only the ranks. The launcher on another node, orted, gets the prefix from the command line, and the
    rest of the image's environment from the worker's sshd (images/triton-multinode/image_mpi.py).

    Args:
        server: settings of every rank.
        addresses: of the nodes' pods; ranks fill them in this order, so the first one serves.
        ranks_per_node: GPUs of a node.
        mpirun: the program's path in the image, which all nodes run.
        ssh_options: how the leader reaches the other pods' sshd.
        environment: the leader's own.
    """
    names = sorted(name for name in environment if name in FORWARDED or name.startswith(FORWARDED_PREFIXES))
    return [
        str(mpirun),
        # with it mpirun gives orted's full path, PATH, LD_LIBRARY_PATH and OPAL_PREFIX to the remote shell
        *("--prefix", str(mpirun.parent.parent)),
        *_mpi_options(),
        *("--mca", "plm_rsh_agent", " ".join([SSH, *ssh_options])),
        # every rank is local to its node's launcher; a tree of launchers would have workers connect to each other
        *("--mca", "plm_rsh_no_tree_spawn", "1"),
        *("--map-by", "slot"),
        *("--host", ",".join(f"{address}:{ranks_per_node}" for address in addresses)),
        *_ranks(server, ranks_per_node * len(addresses), exported=names),
    ]


def _ranks(server: Server, ranks: int, exported: Sequence[str]) -> list[str]:
    """What mpirun starts: a context per rank, or the same program for all, which starts the server at rank 0.

    trtllm-llmapi-launch makes workers of the LLM API of all ranks, and gives rank 0's server an environment without MPI
    (NVIDIA/TensorRT-LLM tensorrt_llm/llmapi/trtllm-llmapi-launch at 020c89e6). It splits its arguments at spaces, of
    which a server's have none.
    """
    shared = [part for name in exported for part in ("-x", name)]
    if server.program:
        return ["-n", str(ranks), *shared, *server.program]
    if server.launcher is None:
        return _contexts(server, ranks, exported)
    return ["-n", str(ranks), *shared, server.launcher, *single(server)]


def _mpi_options() -> list[str]:
    # without --bind-to none, Open MPI pins each rank to one core, and Triton's threads with it
    return ["--bind-to", "none", "--mca", "odls_base_sigkill_timeout", str(KILL_AFTER_S)]


def _contexts(server: Server, ranks: int, exported: Sequence[str] = ()) -> list[str]:
    """One application context per rank: they differ in their arguments. -x counts for its own context only."""
    arguments: list[str] = []
    for number in range(ranks):
        arguments += [":"] if number else []
        arguments += ["-n", "1", *(part for name in exported for part in ("-x", name)), *rank(server, number)]
    return arguments


def _repository(server: Server) -> list[str]:
    return [f"--model-repository={server.repository}"]


def _listening(server: Server) -> list[str]:
    arguments: list[str] = []
    for name in PORTS:
        port = server.ports.get(name)
        arguments += (
            [f"--allow-{name}=false"]
            if port is None
            else [f"--{name}-address={server.bind_address}", f"--{name}-port={port}"]
        )
    return [*arguments, *_restricted(server)] if server.ports else arguments


def _restricted(server: Server) -> list[str]:
    """Close what is no client's business: one that loads a model may send its files, which Triton runs."""
    restricted = f"{','.join(ADMINISTRATION)}:{CONTROL_HEADER}={server.control_key}"
    return [f"--http-restricted-api={restricted}", f"--grpc-restricted-protocol={restricted}"]


def _model_control(server: Server) -> list[str]:
    """Let models unload themselves."""
    return ["--model-control-mode=explicit", "--load-model=*"] if server.unloads_models else []


def _common(server: Server, prefix: str) -> list[str]:
    arguments = [f"--exit-timeout-secs={server.exit_timeout_s}"]
    if not server.completes_configs:
        arguments.append("--disable-auto-complete-config")
    if server.latency_histograms:
        arguments.append("--metrics-config=histogram_latencies=true")
    if server.traces:
        arguments += _tracing(server.traces)
    # several servers on one machine would otherwise share the regions of /dev/shm
    return [*arguments, f"--backend-config=python,shm-region-prefix-name={prefix}"]


def _tracing(traces: Traces) -> list[str]:
    """Triton samples every n-th request, and those whose client sends a sampled context. Tensors are never traced."""
    rate = round(1 / traces.sample_ratio) if traces.sample_ratio else 0
    return [
        "--trace-config=mode=opentelemetry",
        "--trace-config=level=TIMESTAMPS",
        f"--trace-config=rate={rate}",
        f"--trace-config=opentelemetry,url={traces.endpoint}{TRACES_PATH}",
        "--trace-config=opentelemetry,resource=service.name=triton",
    ]
