"""Command lines of servers: one tritonserver, one per GPU of a pod, one per GPU of several nodes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tasks.contracts.spec import ReleaseSpec
from tasks.engines.protocol import REPOSITORY_ROOT
from tasks.rollout.placement import OVER_NODES

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
"""Of what a server answers, by what it answers there."""
RANKED_MODEL_SUFFIX = "_tensorrt_llm"
"""Of the one model in a trt-engine's repository that holds the engine (model_repository_templates/trt-engine). Ranks
above 0 load nothing else, as triton_backend/scripts/launch_triton_server.py of TensorRT-LLM 1.2 has them."""

TRITON = "tritonserver"
MPIRUN = "mpirun"
SSH = "ssh"
SSH_PORT = 2222
"""Of the workers' sshd, which runs as no root."""
KILL_AFTER_S = 5
"""Open MPI 4.1 waits so long before it sends SIGTERM to the ranks, and again before SIGKILL
(odls_base_sigkill_timeout, open-mpi/ompi#7033; 1 s by itself)."""


def end_s(nodes: int) -> int:
    """Seconds from SIGTERM to mpirun until it and every rank is gone, at most.

    Open MPI 4.1.8 ends the ranks of its own node first, and then those of all other nodes together
    (tests/local/serving/test_ranks_over_nodes.py).
    """
    of_a_node = 2 * KILL_AFTER_S
    return of_a_node if nodes == 1 else 2 * of_a_node


FORWARDED = ("PATH", "LD_LIBRARY_PATH", "HOME", "OPAL_PREFIX", "CUDA_HOME")
FORWARDED_PREFIXES = ("NCCL_", "FI_", "UCX_", "TRTLLM_", "TLLM_")
"""Environment of the leader that ranks on other nodes need: a remote shell starts without the container's own."""


@dataclass(frozen=True)
class Server:
    """What a server is told, whoever starts it."""

    bind_address: str
    exit_timeout_s: int
    shared_memory_prefix: str
    """Unique among the servers that see the same /dev/shm: Triton's Python backend names its regions after it."""
    repository: str = REPOSITORY_ROOT
    ports: Mapping[str, int] = field(default_factory=lambda: dict(PORTS))
    """By the names of PORTS; what has no port is not answered."""
    ranked_model: str | None = None
    """The model that every rank loads, where there are ranks."""
    completes_configs: bool = True
    """Whether Triton fills in what a config.pbtxt leaves out. A trt-engine's is complete; llmapi and vllm need it."""


def server_of(spec: ReleaseSpec, ranks: int, server: Server) -> Server:
    """The server with what follows from the release that it holds alone, by so many ranks."""
    ranked = spec.engine.kind == OVER_NODES and ranks > 1
    return replace(
        server,
        ranked_model=f"{spec.name}{RANKED_MODEL_SUFFIX}" if ranked else None,
        completes_configs=spec.engine.kind != OVER_NODES,
    )


def in_a_pod(server: Server, ranks: int) -> list[str]:
    """What a pod with all of the server's GPUs runs."""
    return single(server) if server.ranked_model is None else ranks_in_a_pod(server, ranks)


def single(server: Server) -> list[str]:
    """One server that answers HTTP, gRPC and metrics."""
    return [TRITON, *_repository(server), *_listening(server), *_common(server, server.shared_memory_prefix)]


def rank(server: Server, number: int) -> list[str]:
    """Rank `number` of several. Rank 0 alone is reached from outside; the others hold their share of the engine."""
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
    ssh_options: Sequence[str],
    environment: Mapping[str, str],
) -> list[str]:
    """One server per GPU of every node, started by mpirun in the leader's pod.

    Args:
        server: what every rank is told.
        addresses: of the nodes' pods; ranks fill them in this order, so that the first one serves.
        ranks_per_node: GPUs of a node.
        ssh_options: how the leader reaches the other pods' sshd.
        environment: the leader's own.
    """
    names = sorted(name for name in environment if name in FORWARDED or name.startswith(FORWARDED_PREFIXES))
    return [
        MPIRUN,
        *_mpi_options(),
        *("--mca", "plm_rsh_agent", " ".join([SSH, *ssh_options])),
        # every rank is local to its node's launcher; a tree of launchers would have workers connect to each other
        *("--mca", "plm_rsh_no_tree_spawn", "1"),
        *("--map-by", "slot"),
        *("--host", ",".join(f"{address}:{ranks_per_node}" for address in addresses)),
        *_contexts(server, ranks_per_node * len(addresses), exported=names),
    ]


def _mpi_options() -> list[str]:
    # without --bind-to none, Open MPI pins each rank to one core, and Triton's threads with it
    return ["--bind-to", "none", "--mca", "odls_base_sigkill_timeout", str(KILL_AFTER_S)]


def _contexts(server: Server, ranks: int, exported: Sequence[str] = ()) -> list[str]:
    """One application context per rank: they differ in their arguments. -x counts for its own context only."""
    words: list[str] = []
    for number in range(ranks):
        words += [":"] if number else []
        words += ["-n", "1", *(word for name in exported for word in ("-x", name)), *rank(server, number)]
    return words


def _repository(server: Server) -> list[str]:
    return [f"--model-repository={server.repository}"]


def _listening(server: Server) -> list[str]:
    words: list[str] = []
    for name in PORTS:
        port = server.ports.get(name)
        words += (
            [f"--allow-{name}=false"]
            if port is None
            else [f"--{name}-address={server.bind_address}", f"--{name}-port={port}"]
        )
    return words


def _common(server: Server, prefix: str) -> list[str]:
    words = [f"--exit-timeout-secs={server.exit_timeout_s}"]
    if not server.completes_configs:
        words.append("--disable-auto-complete-config")
    # several servers on one machine would otherwise share the regions of /dev/shm
    return [*words, f"--backend-config=python,shm-region-prefix-name={prefix}"]
