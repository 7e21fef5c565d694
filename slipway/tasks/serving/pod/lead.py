"""lead: first process of a leader's pod in a LeaderWorkerSet. Waits for the group's other pods, then becomes mpirun."""

import argparse
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.kube.kube import Cluster, Document
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.telemetry import Telemetry
from slipway.tasks.serving.rendered import commands

log = logging.getLogger(__name__)

GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-key"
INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
"""Set on every pod by LeaderWorkerSet v1 (api/leaderworkerset/v1/leaderworkerset_types.go); a leader's index is 0."""
SSH_CONFIG = "/etc/slipway-mpi/ssh_config"
PUBLIC_KEY = Path("/etc/slipway-mpi/keys/ssh-publickey")
KNOWN_HOSTS = "known_hosts"
ORTED = "orted"
POLL_S = 2.0
REPORT_EVERY_S = 10.0


@dataclass(frozen=True)
class MultinodeServer:
    """The pods of one replica over several nodes, and what they run."""

    key: str
    nodes: int
    ranks_per_node: int
    ready_timeout_s: float
    server: commands.Server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that k8s_manifests/serving/leaderworkerset.yaml.j2 passes to its leader."""
    parser.add_argument("--group", required=True, help=f"label {GROUP_LABEL} of the pods")
    parser.add_argument("--nodes", type=int, required=True, help="pods of the group, the leader among them")
    parser.add_argument("--ranks-per-node", type=int, required=True, help="GPUs of each pod")
    ranks = parser.add_mutually_exclusive_group(required=True)
    ranks.add_argument("--ranked-model", help="the model that every rank loads, each in a server of its own")
    ranks.add_argument("--launcher", help="program of every rank, which starts the one server at rank 0")
    ranks.add_argument("--all-reduce-mib", type=int, help="measure the network instead: what each rank contributes")
    parser.add_argument("--bind-address", required=True, help="address that rank 0 binds to")
    parser.add_argument("--exit-timeout-s", type=int, required=True)
    parser.add_argument("--ready-timeout-s", type=float, required=True, help="how long the pods may take to be ready")


def multinode_server(
    parsed: argparse.Namespace, telemetry: Telemetry | None = None, *, control_key: str
) -> MultinodeServer:
    """The server that the arguments describe."""
    server = commands.Server(
        parsed.bind_address,
        parsed.exit_timeout_s,
        "slipway",
        control_key=control_key,
        ranked_model=parsed.ranked_model,
        launcher=parsed.launcher,
        latency_histograms=telemetry is not None and telemetry.metrics,
        traces=telemetry.triton_traces if telemetry else None,
    )
    if parsed.all_reduce_mib:
        program = ("python", "-m", "slipway.tasks", "all-reduce", f"--mib={parsed.all_reduce_mib}")
        server = replace(server, program=(*program, f"--timeout-s={parsed.exit_timeout_s}"))
    return MultinodeServer(parsed.group, parsed.nodes, parsed.ranks_per_node, parsed.ready_timeout_s, server)


def command(
    pods: MultinodeServer,
    cluster: Cluster,
    clock: Clock,
    *,
    public_key: Path,
    folder: Path,
    environment: Mapping[str, str],
) -> list[str]:
    """Command line that the leader becomes once every pod of its server can take ranks.

    Args:
        pods: the pods to wait for.
        cluster: the cluster, in which the leader's account may list pods.
        clock: time.
        public_key: of the key pair that all pods of the group share, by which they authenticate each other.
        folder: where the list of known hosts is written.
        environment: the process's own.

    Raises:
        InputError: there is no key, or Open MPI is not installed as expected.
        UnavailableError: a pod is not ready in time.
    """
    mpirun = find_mpirun(environment)
    try:
        key = public_key.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(
            f"{public_key}, by which the nodes of a server authenticate each other, cannot be read",
            found=error.strerror,
            remedy="Create the site's serving.mpi_secret with ssh-privatekey and ssh-publickey.",
        ) from error
    addresses = addresses_of(pods, cluster, clock)
    known_hosts = folder / KNOWN_HOSTS
    known_hosts.write_text(
        "".join(f"[{address}]:{commands.SSH_PORT} {key}\n" for address in addresses), encoding="utf-8"
    )
    server = pods.server
    if server.program:
        server = replace(server, program=(*server.program, f"--leader={addresses[0]}"))
    ssh_options = ["-F", SSH_CONFIG, "-o", f"UserKnownHostsFile={known_hosts}"]
    return commands.ranks_on_nodes(
        server,
        addresses,
        pods.ranks_per_node,
        mpirun=mpirun,
        ssh_options=ssh_options,
        environment=environment,
    )


def find_mpirun(environment: Mapping[str, str]) -> Path:
    """Path of mpirun, once it is certain that other nodes, which run the same image, can start its launcher.

    HPC-X, the Open MPI of NVIDIA's images, was built for a folder that does not exist there. It finds its own parts by
    OPAL_PREFIX; without it, or with that of another installation, orted fails on the other node before it can say why.

    Raises:
        InputError: mpirun or orted is missing, or OPAL_PREFIX names another installation.
    """
    program = shutil.which(commands.MPIRUN, path=environment.get("PATH", ""))
    if program is None:
        raise InputError(
            f"{commands.MPIRUN} is not on PATH",
            found=environment.get("PATH", ""),
            remedy="Run the leader in the site's images.multinode.",
        )
    mpirun = Path(program)
    stated = environment.get("OPAL_PREFIX")
    for prefix in (mpirun.parent.parent, *([Path(stated)] if stated else [])):
        if not os.access(prefix / "bin" / ORTED, os.X_OK):
            raise InputError(
                f"{prefix / 'bin' / ORTED} is missing, which {program} starts on other nodes",
                found=f"OPAL_PREFIX {stated or 'not set'}",
                remedy="Build the site's images.multinode from images/triton-multinode.",
            )
    if stated and not (Path(stated) / "bin" / ORTED).samefile(mpirun.parent / ORTED):
        raise InputError(
            f"{commands.MPIRUN} on PATH and OPAL_PREFIX belong to two installations of Open MPI",
            found=f"{program} and {stated}",
            remedy="Put the one that the image was built with first on PATH.",
        )
    return mpirun


def addresses_of(server: MultinodeServer, cluster: Cluster, clock: Clock) -> list[str]:
    """Addresses of the group's pods once all of them can take ranks, the leader's first.

    Raises:
        UnavailableError: not all are there in time.
    """
    began = reported = clock.monotonic()
    while True:
        pods = _of_this_start(cluster.find("Pod", {GROUP_LABEL: server.key}))
        missing = [index for index in range(server.nodes) if not _is_usable(index, pods.get(index))]
        if not missing:
            return [str(pods[index]["status"]["podIP"]) for index in range(server.nodes)]
        now = clock.monotonic()
        ready = f"{server.nodes - len(missing)} of {server.nodes} pods of the group can take ranks"
        if now - began > server.ready_timeout_s:
            raise UnavailableError(
                f"{ready} after {now - began:.0f} s",
                found=f"not ready: {_named(missing, pods)}",
                remedy="Read their events and logs, and check that enough nodes have free GPUs.",
            )
        if now - reported >= REPORT_EVERY_S:
            reported = now
            log.info("%s, waiting for %s", ready, _named(missing, pods))
        clock.sleep(POLL_S)


def _of_this_start(listed: Sequence[Document]) -> dict[int, Document]:
    """Pods by index that were started with this leader. A group that is created again has the same key.

    Workers are created after their leader; those of an earlier leader may stay ready until they are garbage-collected.
    """
    pods = {_index(pod): pod for pod in listed if not _is_ending(pod)}
    since = _created(pods[0]) if 0 in pods else ""
    return {index: pod for index, pod in pods.items() if _created(pod) >= since}


def _created(pod: Document) -> str:
    """Creation time as the API writes it, which sorts chronologically."""
    return str(pod["metadata"]["creationTimestamp"])


def _is_usable(index: int, pod: Document | None) -> bool:
    """Whether a pod can take ranks: a worker when its sshd listens. The leader, this own pod, is ready only later."""
    status = (pod or {}).get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or []}
    return bool(status.get("podIP")) and (index == 0 or conditions.get("Ready") == "True")


def _named(indexes: Sequence[int], pods: Mapping[int, Document]) -> str:
    return ", ".join(pods[index]["metadata"]["name"] if index in pods else f"worker {index}" for index in indexes)


def _index(pod: Document) -> int:
    return int(pod["metadata"]["labels"][INDEX_LABEL])


def _is_ending(pod: Document) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
