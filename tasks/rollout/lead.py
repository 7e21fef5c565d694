"""lead: first process of a leader's pod in a LeaderWorkerSet. Waits for the group's other pods, then becomes mpirun."""

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.adapters.clock import Clock
from tasks.adapters.kube import Cluster, Document
from tasks.contracts.errors import InputError, UnavailableError
from tasks.rollout import launch

log = logging.getLogger(__name__)

GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-key"
INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
"""Set on every pod by LeaderWorkerSet v1 (api/leaderworkerset/v1/leaderworkerset_types.go); a leader's index is 0."""
SSH_CONFIG = "/etc/slipway-mpi/ssh_config"
PUBLIC_KEY = Path("/etc/slipway-mpi/keys/ssh-publickey")
KNOWN_HOSTS = "known_hosts"
POLL_S = 2.0
REPORT_EVERY_S = 10.0


@dataclass(frozen=True)
class Group:
    """The pods of one replica, and what they run."""

    key: str
    nodes: int
    ranks_per_node: int
    ready_timeout_s: float
    server: launch.Server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What k8s_manifests/serving/leaderworkerset.yaml.j2 says to its leader."""
    parser.add_argument("--group", required=True, help=f"label {GROUP_LABEL} of the pods")
    parser.add_argument("--nodes", type=int, required=True, help="pods of the group, the leader among them")
    parser.add_argument("--ranks-per-node", type=int, required=True, help="GPUs of each pod")
    parser.add_argument("--ranked-model", required=True, help="the model that every rank loads")
    parser.add_argument("--bind-address", required=True, help="address that rank 0 binds to")
    parser.add_argument("--exit-timeout-s", type=int, required=True)
    parser.add_argument("--ready-timeout-s", type=float, required=True, help="how long the pods may take to be ready")


def group_of(parsed: argparse.Namespace) -> Group:
    """The group that the arguments describe."""
    server = launch.Server(
        parsed.bind_address,
        parsed.exit_timeout_s,
        "slipway",
        ranked_model=parsed.ranked_model,
        completes_configs=False,
    )
    return Group(parsed.group, parsed.nodes, parsed.ranks_per_node, parsed.ready_timeout_s, server)


def command(
    group: Group, cluster: Cluster, clock: Clock, *, public_key: Path, folder: Path, environment: Mapping[str, str]
) -> list[str]:
    """What the leader becomes once every pod of its group is there.

    Args:
        group: whom to wait for.
        cluster: the API, which the leader's account may ask for pods.
        clock: time.
        public_key: of the pair that all pods of the group share; a node proves with it that it is one.
        folder: where the list of known hosts is written.
        environment: the process's own.

    Raises:
        InputError: there is no key.
        UnavailableError: a pod is not ready in time.
    """
    try:
        key = public_key.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(
            f"{public_key}: {error.strerror}; the nodes of a group know each other by it. Make the site's "
            "serving.mpi_secret with ssh-privatekey and ssh-publickey."
        ) from error
    addresses = addresses_of(group, cluster, clock)
    known_hosts = folder / KNOWN_HOSTS
    known_hosts.write_text("".join(f"[{address}]:{launch.SSH_PORT} {key}\n" for address in addresses), encoding="utf-8")
    ssh_options = ["-F", SSH_CONFIG, "-o", f"UserKnownHostsFile={known_hosts}"]
    return launch.ranks_on_nodes(
        group.server, addresses, group.ranks_per_node, ssh_options=ssh_options, environment=environment
    )


def addresses_of(group: Group, cluster: Cluster, clock: Clock) -> list[str]:
    """Addresses of the group's pods once all of them can take ranks, the leader's first.

    Raises:
        UnavailableError: not all are there in time.
    """
    began = reported = clock.monotonic()
    while True:
        pods = _of_this_start(cluster.find("Pod", {GROUP_LABEL: group.key}))
        missing = [index for index in range(group.nodes) if not _usable(index, pods.get(index))]
        if not missing:
            return [str(pods[index]["status"]["podIP"]) for index in range(group.nodes)]
        now = clock.monotonic()
        words = f"{group.nodes - len(missing)} of {group.nodes} pods of the group can take ranks"
        if now - began > group.ready_timeout_s:
            raise UnavailableError(
                f"{words} after {now - began:.0f} s, missing: {_named(missing, pods)}. Their events and logs say why; "
                "are there enough nodes with free GPUs?"
            )
        if now - reported >= REPORT_EVERY_S:
            reported = now
            log.info("%s, waiting for %s", words, _named(missing, pods))
        clock.sleep(POLL_S)


def _of_this_start(listed: Sequence[Document]) -> dict[int, Document]:
    """Pods by index that this leader was started with. The key does not tell: a group made anew has the same one.

    Workers are made after their leader; those of the leader before may still be ready for a while, until they are
    collected.
    """
    pods = {_index(pod): pod for pod in listed if not _ending(pod)}
    since = _created(pods[0]) if 0 in pods else ""
    return {index: pod for index, pod in pods.items() if _created(pod) >= since}


def _created(pod: Document) -> str:
    """As the API writes it, which sorts as time does."""
    return str(pod["metadata"]["creationTimestamp"])


def _usable(index: int, pod: Document | None) -> bool:
    """A leader, this process's own pod, is ready only when it serves; a worker, when its sshd listens."""
    status = (pod or {}).get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or []}
    return bool(status.get("podIP")) and (index == 0 or conditions.get("Ready") == "True")


def _named(indexes: Sequence[int], pods: Mapping[int, Document]) -> str:
    return ", ".join(pods[index]["metadata"]["name"] if index in pods else f"worker {index}" for index in indexes)


def _index(pod: Document) -> int:
    return int(pod["metadata"]["labels"][INDEX_LABEL])


def _ending(pod: Document) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
