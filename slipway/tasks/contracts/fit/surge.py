"""How a candidate shares GPUs with the live release (`rollout.surge: none`), and what clients lose by it. Pure."""

from typing import NamedTuple

from pydantic import Field

from slipway.tasks.contracts.base import Contract
from slipway.tasks.contracts.kubernetes_text import ReleaseId
from slipway.tasks.contracts.spec.spec import ReleaseSpec

MINUTE_S = 60


class Shares(NamedTuple):
    """Replicas that run at the same time on the GPUs of the live release."""

    live: int
    candidate: int


def shares(live: ReleaseSpec, replicas: int, candidate: ReleaseSpec) -> Shares:
    """Divide the GPUs of `replicas` replicas of the live release.

    It keeps one replica if the rest of its GPUs hold a replica of the candidate, and none otherwise. The candidate gets
    as many replicas as fit, at most those that it is going to serve with, and at least one.
    """
    theirs, own, most = _gpus(live), _gpus(candidate), full_replicas(candidate, replicas)
    fitting = (replicas - 1) * theirs // own
    if fitting >= 1:
        return Shares(1, min(most, fitting))
    return Shares(0, max(1, min(most, replicas * theirs // own)))


def handed_over(live: ReleaseSpec, replicas: int, candidate: ReleaseSpec) -> int:
    """GPUs that the candidate's replicas take over from `replicas` of the live release; without GPUs, replicas."""
    share = shares(live, replicas, candidate)
    return min((replicas - share.live) * _gpus(live), share.candidate * _gpus(candidate))


def full_replicas(spec: ReleaseSpec, serving: int) -> int:
    """Replicas that a release takes over with from a live release of `serving` replicas, if there is room for them."""
    bounds = spec.serving.replicas
    return bounds.min if spec.serving.autoscale is None else max(bounds.min, min(serving, bounds.max))


def _gpus(spec: ReleaseSpec) -> int:
    """GPUs of a replica; without GPUs a replica counts as one."""
    return spec.engine.ranks if spec.engine.gpu else 1


class Interruption(Contract):
    """What clients of the live release lose while a candidate runs on its GPUs."""

    live: ReleaseId
    replicas: int = Field(ge=1, description="of the live release; with a scaler at least")
    kept: int = Field(ge=0, description="of these, while the candidate is there; 0: no request is answered")
    seconds: float | None = Field(
        default=None,
        ge=0,
        description="expected from roll-out to promotion, without approval; null: no earlier release shows it",
    )
    of: ReleaseId | None = Field(default=None, description="the earlier release that took this time")
    untimed: tuple[str, ...] = Field(default=(), description="steps that left no time there, and are not in seconds")

    @property
    def words(self) -> str:
        """What is lost, from when and until when, for a person who decides about the release."""
        lost = (
            f"rollout.surge none scales {self.live} from {self.replicas} replicas to {self.kept}: less capacity"
            if self.kept
            else f"rollout.surge none stops {self.live} before the candidate starts: every request fails"
        )
        without = f", which has none for {' and '.join(self.untimed)}" if self.untimed else ""
        took = (
            "no earlier release shows how long that takes"
            if self.seconds is None
            else f"about {max(1, round(self.seconds / MINUTE_S))} min by the times of {self.of or self.live}{without}"
        )
        until = f"until the candidate is promoted or {self.live} is back after a rollback"
        return f"{lost} {until} ({took}; waiting for approval, nodes and images is not included)"
