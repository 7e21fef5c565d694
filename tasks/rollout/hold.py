"""Who may change a model: a run that holds the model's lease, and its group's where it shares a server."""

import logging
from dataclasses import dataclass

from tasks.adapters.clock import Clock
from tasks.adapters.kube import Cluster
from tasks.adapters.lease_object import LeaseHolder
from tasks.contracts.errors import ConflictError, UnavailableError
from tasks.contracts.spec import ReleaseSpec
from tasks.rollout.hosting import leases

log = logging.getLogger(__name__)

LEASE_S = 1800  # and the time that a candidate may take to become ready
LOOK_S = 5.0
REPORT_EVERY_S = 30.0


@dataclass(frozen=True)
class Hold:
    """What one run holds of one model. Every method may be called again."""

    spec: ReleaseSpec
    run: str
    cluster: Cluster
    clock: Clock

    def take(self, *, patience_s: float = 0.0) -> None:
        """Make this run the only one that changes the model, and its group if it has one; renews what it has.

        Args:
            patience_s: how long to wait while another model of the group is released. For the model itself nobody
                waits: two releases of one model are not meant to follow each other.

        Raises:
            ConflictError: another run is at it. Then this one holds nothing any more.
            UnavailableError: one still is after `patience_s`; the same.
        """
        began = reported = self.clock.monotonic()
        while (refused := self._refused()) is not None:
            lease, other, now = *refused, self.clock.monotonic()
            if patience_s == 0 or lease == self._leases[0]:
                self.drop()
                raise ConflictError(self._taken(lease, other))
            if now - began >= patience_s:
                self.drop()
                raise UnavailableError(f"{self._taken(lease, other)} Waited {now - began:.0f} s.")
            if now - reported >= REPORT_EVERY_S:
                reported = now
                waited = f"{now - began:.0f} of at most {patience_s:.0f} s"
                log.info("waited %s for run %s, which releases a model of %s", waited, other.holder, self._held(lease))
            self.clock.sleep(LOOK_S)

    def keep(self) -> None:
        """Renew what roll-out took, also after it expired, unless another run had it meanwhile.

        Raises:
            ConflictError: one had: what this run measured may have been the other one's candidate.
        """
        for lease in self._leases:
            holder = self.cluster.lease_holder(lease)
            if holder is None or holder.holder != self.run:
                raise self._overtaken(lease, holder)
        self.take()

    def drop(self) -> None:
        """Let the next run have the model."""
        for lease in self._leases:
            self.cluster.release_lease(lease, self.run)

    @property
    def _leases(self) -> tuple[str, ...]:
        return leases(self.spec)

    def _refused(self) -> tuple[str, LeaseHolder] | None:
        """The first lease that this run cannot have, and who has it."""
        duration_s = LEASE_S + self.spec.serving.ready_timeout_s
        for lease in self._leases:
            other = self.cluster.acquire_lease(lease, self.run, duration_s)
            if other is not None:
                return lease, other
        return None

    def _held(self, lease: str) -> str:
        """What a lease stands for, in words."""
        return self.spec.name if lease == self._leases[0] else f"group {self.spec.serving.group}"

    def _taken(self, lease: str, other: LeaseHolder) -> str:
        return (
            f"a release of {self._held(lease)} is in progress: run {other.holder} has held it since "
            f"{other.since:%Y-%m-%d %H:%M:%S} UTC. Wait until it ends. If it was killed, run `python -m tasks "
            f"roll-back` for it, or wait until its hold ends at {other.until:%H:%M:%S} UTC."
        )

    def _overtaken(self, lease: str, holder: LeaseHolder | None) -> ConflictError:
        taken = f"run {holder.holder} took it at {holder.since:%H:%M:%S} UTC" if holder else "nobody holds it now"
        return ConflictError(
            f"run {self.run} no longer holds {self._held(lease)}: {taken}. What it measured may be another release's "
            "candidate, so it promotes nothing. Run the release again."
        )
