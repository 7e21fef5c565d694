"""all-reduce: one rank of the measurement of the network between nodes, by the torch that the serving image holds.

mpirun starts a rank for each GPU, as it does for a server over several nodes, so ssh, Open MPI and NCCL's choice of a
network are those of the release. NVIDIA's images do not hold nccl-tests.
"""

import argparse
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from slipway.tasks.contracts.errors import InputError, UnavailableError

if TYPE_CHECKING:
    from slipway.tasks.contracts.site.network_check import AllReduce

PORT = 29500
WARM_UP, TIMED = 5, 20
RANK, SIZE, LOCAL = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"
"""Set by Open MPI 4.1 for each rank."""
MEBI = 2**20


@dataclass(frozen=True)
class Rank:
    """One rank, and what it is to do."""

    number: int
    ranks: int
    local: int
    leader: str
    """Address of rank 0."""
    port: int
    size_bytes: int
    backend: str
    """`nccl`, or `gloo` without GPUs."""
    timeout_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a rank, which slipway/tasks/serving/pod/lead.py passes."""
    parser.add_argument("--leader", required=True, help="address of rank 0")
    parser.add_argument("--port", type=int, default=PORT, help="where rank 0 listens for the others")
    parser.add_argument("--mib", type=int, required=True, help="what each rank contributes")
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    parser.add_argument("--timeout-s", type=float, required=True)


def rank_of(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Rank:
    """The rank that Open MPI started this process as.

    Raises:
        InputError: it did not.
    """
    try:
        number, ranks, local = (int(environment[name]) for name in (RANK, SIZE, LOCAL))
    except KeyError as error:
        raise InputError(
            f"{error.args[0]} is not set", expected="a process that mpirun started", remedy="Run it by mpirun."
        ) from error
    size_bytes = parsed.mib * MEBI
    return Rank(number, ranks, local, parsed.leader, parsed.port, size_bytes, parsed.backend, parsed.timeout_s)


def measure(rank: Rank) -> "AllReduce | None":
    """Take part in the measurement. Rank 0 returns the result, the others None.

    Raises:
        InputError: the ranks' sums are wrong: the network or a GPU corrupts data.
        UnavailableError: the ranks do not reach each other.
    """
    import torch
    from torch import distributed

    from slipway.tasks.contracts.site.network_check import AllReduce

    limit = timedelta(seconds=rank.timeout_s)
    if rank.backend == "nccl":
        torch.cuda.set_device(rank.local)
    where = f"cuda:{rank.local}" if rank.backend == "nccl" else "cpu"
    try:
        distributed.init_process_group(
            rank.backend,
            init_method=f"tcp://{rank.leader}:{rank.port}",
            rank=rank.number,
            world_size=rank.ranks,
            timeout=limit,
        )
        ones = torch.ones(rank.size_bytes // 4, dtype=torch.float32, device=where)
        distributed.all_reduce(ones)
        wrong = int((ones != rank.ranks).sum().item())
        seconds = [_timed(ones, where) for _ in range(WARM_UP + TIMED)][WARM_UP:]
    except RuntimeError as error:
        raise UnavailableError(
            f"rank {rank.number} of {rank.ranks}: the all-reduce over {rank.backend} failed",
            found=" ".join(str(error).split())[:500],
            remedy="Check the security group or network policy between the nodes, and the device plugin of EFA.",
        ) from error
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
    if wrong:
        raise InputError(
            f"rank {rank.number}: {wrong} sums of the all-reduce are wrong",
            expected=str(rank.ranks),
            remedy="Take the node out of service and check its GPU and network.",
        )
    if rank.number:
        return None
    return AllReduce(
        ranks=rank.ranks, size_bytes=rank.size_bytes, seconds=statistics.median(seconds), backend=rank.backend
    )


def run(parsed: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> str:
    """Measure as one rank. What rank 0 returns becomes the termination message of its container."""
    result = measure(rank_of(parsed, environment))
    return result.model_dump_json() if result else "measured"


def _timed(ones: "object", where: str) -> float:
    """Seconds of one all-reduce, between barriers."""
    import torch
    from torch import distributed

    assert isinstance(ones, torch.Tensor)
    ones.fill_(1.0)
    distributed.barrier()
    began = time.perf_counter()
    distributed.all_reduce(ones)
    if where != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - began
