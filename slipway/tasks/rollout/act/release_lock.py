"""Lets one run at a time change a model: it holds the model's lease, and its group's if it shares a server."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.lease_object import LeaseHolder
from slipway.tasks.contracts.errors import ConflictError, UnavailableError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.lease import lease_names

log = logging.getLogger(__name__)

LEASE_S = 1800  # plus the time that a candidate may take to become ready
RETRY_S = 5.0
REPORT_EVERY_S = 30.0
LONGEST = timedelta(days=7)
"""No run acquires a lease for as long as that."""


@dataclass(frozen=True)
class ReleaseLock:
    """One run's lock on one model. Every method may be called again."""

    spec: ReleaseSpec
    run: str
    cluster: Cluster
    clock: Clock
    dag_run: str = ""
    start_s: int = 0
    """How long pods may wait for nodes and images, during which the lease is not renewed."""
    ended_holders: Mapping[str, str] = field(default_factory=dict)
    """Leases that this run may take over before they expire; see slipway/tasks/contracts/stored/lease.py."""

    def acquire(self, *, patience_s: float = 0.0) -> None:
        """Acquire the lease of the model, and of its group if it has one; renew the ones that this run has already.

        Args:
            patience_s: how long to wait while another model of the group is released, or a drill of this one runs.
                There is no other wait for the model's own lease: two releases of one model are not meant to queue.

        Raises:
            ConflictError: another run holds a lease. This run then holds none.
            UnavailableError: such a run still holds a lease after `patience_s`; likewise.
        """
        began = reported = self.clock.monotonic()
        while (refused := self._refused()) is not None:
            lease, other, now = *refused, self.clock.monotonic()
            if patience_s == 0 or (lease == self._leases[0] and not other.is_drill):
                self.release()
                raise self._conflict(lease, other)
            if now - began >= patience_s:
                self.release()
                raise UnavailableError(
                    f"{self._in_progress(lease, other)} after {now - began:.0f} s of waiting",
                    found=_held_by(other),
                    remedy=self._remedy(lease, other),
                )
            if now - reported >= REPORT_EVERY_S:
                reported = now
                waited = f"{now - began:.0f} of at most {patience_s:.0f} s"
                log.info("waited %s for run %s: %s", waited, other.holder, self._in_progress(lease, other))
            self.clock.sleep(RETRY_S)

    def renew(self) -> None:
        """Renew the leases of roll-out, even expired ones, unless another run has had them since.

        Raises:
            ConflictError: another run has: this one may have measured the other run's candidate.
        """
        for lease in self._leases:
            holder = self.cluster.lease_holder(lease)
            if holder is None or not holder.is_same(self.run, self.dag_run):
                raise self._lost(lease, holder)
        self.acquire()

    def unfinished(self) -> LeaseHolder | None:
        """Another run of Airflow's that has a lease, perhaps an expired one, and is not known to have ended.

        A release does not renew its lease while it is measured or waits for a person.
        """
        return found[1] if (found := self._unfinished()) else None

    def check_ended(self) -> None:
        """Check that no such run is there, before `acquire` takes an expired lease away from it.

        Raises:
            ConflictError: one is.
        """
        if (found := self._unfinished()) is not None:
            raise self._conflict(*found)

    def left_by(self) -> LeaseHolder | None:
        """The run that has ended and still has the model's own lease, and so left the model in the middle."""
        own = self._leases[0]
        other = self.cluster.lease_holder(own)
        return other if other is not None and other.version == self.ended_holders.get(own) else None

    def is_free(self) -> bool:
        """Whether no run has a lease."""
        return all(self.cluster.lease_holder(lease) is None for lease in self._leases)

    def release(self) -> None:
        """Release the leases."""
        for lease in self._leases:
            self.cluster.release_lease(lease, self.run, dag_run=self.dag_run)

    @property
    def _leases(self) -> tuple[str, ...]:
        return lease_names(self.spec)

    def _unfinished(self) -> tuple[str, LeaseHolder] | None:
        for lease in self._leases:
            other = self.cluster.lease_holder(lease)
            if other is None or not other.dag_run or other.is_same(self.run, self.dag_run):
                continue
            if other.version != self.ended_holders.get(lease):
                return lease, other
        return None

    def _refused(self) -> tuple[str, LeaseHolder] | None:
        """The first lease that this run cannot acquire, and its holder; None when it acquired all."""
        duration_s = LEASE_S + self.start_s + self.spec.serving.ready_timeout_s
        for lease in self._leases:
            ended_at = self.ended_holders.get(lease)
            other = self.cluster.acquire_lease(lease, self.run, duration_s, dag_run=self.dag_run, ended_at=ended_at)
            if other is not None:
                return lease, other
        return None

    def _subject(self, lease: str) -> str:
        """Name what a lease protects."""
        return self.spec.name if lease == self._leases[0] else f"group {self.spec.serving.group}"

    def _in_progress(self, lease: str, other: LeaseHolder) -> str:
        return f"a {'drill' if other.is_drill else 'release'} of {self._subject(lease)} is in progress"

    def _conflict(self, lease: str, other: LeaseHolder) -> ConflictError:
        return ConflictError(self._in_progress(lease, other), found=_held_by(other), remedy=self._remedy(lease, other))

    def _lost(self, lease: str, holder: LeaseHolder | None) -> ConflictError:
        taken = f"run {holder.holder}, which acquired it at {holder.since:%H:%M:%S} UTC" if holder else "no holder"
        return ConflictError(
            f"run {self.run} lost the lease of {self._subject(lease)}, so it may have measured another candidate",
            found=taken,
            remedy="Run the release again.",
        )

    def _remedy(self, lease: str, other: LeaseHolder) -> str:
        if other.until - self.clock.now() > LONGEST:
            return (
                f"No run of Slipway writes a lease until {other.until:%Y-%m-%d}: if none is at the model, delete it: "
                f"kubectl -n {self.cluster.namespace} delete lease {lease}"
            )
        if other.dag_run:
            return (
                f"Wait until it ends, or end it: mark Airflow's run {other.dag_run} as failed, or reject it if it "
                "waits for approval; then try again."
            )
        return f"Airflow did not start that run. Wait until it ends; its lease expires at {other.until:%H:%M:%S} UTC."


def _held_by(other: LeaseHolder) -> str:
    return f"run {other.holder}, which has held the lease since {other.since:%Y-%m-%d %H:%M:%S} UTC"
