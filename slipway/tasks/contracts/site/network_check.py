"""The measurement of the network between the nodes of a server: what a site asks for, and what was measured. Pure."""

from collections.abc import Collection
from datetime import datetime, timedelta

from pydantic import Field

from slipway.tasks.contracts.base import Contract, UserDocument


class NetworkFloor(UserDocument):
    """What the network between nodes with a GPU product must be able to do."""

    min_gb_per_s: float = Field(
        gt=0,
        le=100_000,
        description="bus bandwidth of an all-reduce over all GPUs, in 10^9 bytes per second: 0.8 of what good nodes do",
    )
    size_mib: int = Field(default=1024, ge=1, le=65536, description="what each GPU contributes to an all-reduce")
    valid_h: float = Field(
        default=24, ge=0, le=8760, description="hours in which the same nodes and image are not measured again"
    )
    timeout_s: int = Field(default=600, ge=10, le=86400, description="time for the measurement, once all pods run")


class AllReduce(Contract):
    """What rank 0 reports."""

    ranks: int = Field(ge=1)
    size_bytes: int = Field(ge=1, description="what each rank contributed")
    seconds: float = Field(gt=0, description="of one all-reduce, the median of the timed ones")
    backend: str

    @property
    def bus_gb_per_s(self) -> float:
        """Bus bandwidth in 10^9 bytes per second: what each rank sends and receives, whatever the number of ranks.

        2 (n - 1) / n of the size crosses each rank's link in a ring (doc/PERFORMANCE.md of NVIDIA/nccl-tests).
        """
        return 2 * (self.ranks - 1) / self.ranks * self.size_bytes / self.seconds / 1e9


class NodeIdentity(Contract):
    """One node. A name may come again with another machine; a uid does not."""

    name: str
    uid: str


class NetworkRecord(Contract):
    """The last measurement that passed, of one GPU product and image."""

    image: str
    nodes: tuple[NodeIdentity, ...]
    gb_per_s: float
    measured_at: datetime

    def covers(self, image: str, present: Collection[NodeIdentity], count: int, now: datetime, valid_h: float) -> bool:
        """Whether a server of `count` nodes would run on nodes that passed with this image in the last `valid_h` hours.

        Pods may be placed on any node that is present, so all of them must have been measured, together.
        """
        measured = {node.uid for node in self.nodes}
        recent = now - self.measured_at < timedelta(hours=valid_h)
        return recent and self.image == image and len(present) >= count and {node.uid for node in present} <= measured
