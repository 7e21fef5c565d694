"""The head of an artifact or a release: the one document that makes it exist, manifest.json or release.json.

Writers and retention change a head only by compare-and-swap, so they agree on who owns the objects beside it:

    absent ──► Claim ──► Manifest ──► Removal ──► absent
               (a step     (exists)    (retention
                writes)                 deletes)

A removal replaces the head that retention judged, at the ETag that it saw. Whoever uses an artifact changes its head
first, so either the removal fails, or the user sees it (docs/decisions/0026).
"""

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.store.object_store import LostRaceError, ObjectStore
from slipway.tasks.contracts.base import canonical_json, parse_json, read_contract
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.stored.artifact import Claim, Removal

TAKEOVER_S = 3600
"""After this a removal was cut short. It is longer than DELETING_S, the time-outs of a request and the difference of
two clocks that S3 accepts (15 minutes each) together, so no request of that removal is still on its way."""
DELETING_S = 300
"""How long a removal deletes before it renews its mark."""
POLL_S = 2.0
ATTEMPTS = 10
REPORT_EVERY_S = 30.0

log = logging.getLogger(__name__)


class Heads:
    """Reads heads, claims them for writers, and marks them for removal."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def claim(self, uri: str, *, patience_s: float) -> str:
        """Announce that the artifact is being written; return the ETag that its manifest must replace.

        A young claim of another writer is shared, because two that replaced each other's would never end. If the
        artifact exists, the ETag is that of its manifest.

        Raises:
            LostRaceError: another writer was first.
            UnavailableError: retention still deletes the artifact after `patience_s`.
        """
        head = self.unless_removed(uri, patience_s=patience_s)
        if head is not None and (exists(head[0], uri) or self._is_young_claim(head[0], uri)):
            return head[1]
        claim = Claim(claimed_by=uuid.uuid4().hex, claimed_at=self._clock.now())
        return self._put(uri, claim, head[1] if head else None)

    def replace(self, uri: str, data: bytes, *, patience_s: float) -> None:
        """Write a head over what is there, after a removal that is in progress has ended.

        Raises:
            LostRaceError: other writers changed it each time.
            UnavailableError: the removal is still in progress after `patience_s`.
        """
        for _ in range(ATTEMPTS):
            head = self.unless_removed(uri, patience_s=patience_s)
            try:
                self._store.put_if(uri, data, etag=head[1] if head else None)
            except LostRaceError:
                continue
            return
        raise LostRaceError(f"{uri} was changed {ATTEMPTS} times in a row", remedy="Run the step again.")

    def mark(self, uri: str, etag: str | None) -> str | None:
        """Mark for removal what has the head `etag`, or no head; return the mark's ETag, or None if that has changed.

        None is also the answer while another removal is in progress.
        """
        head = self._store.read_with_etag(uri)
        if (None if head is None else head[1]) != etag:
            return None
        if head is not None and self._is_in_progress(removal_in(head[0], uri)):
            return None
        try:
            return self._put(uri, Removal(removed_by=uuid.uuid4().hex, removed_at=self._clock.now()), etag)
        except LostRaceError:
            return None

    def renewed(self, uri: str, etag: str) -> str | None:
        """Renew a mark that is at `etag`; return its new ETag, or None if another process took the removal over."""
        try:
            return self._put(uri, Removal(removed_by=uuid.uuid4().hex, removed_at=self._clock.now()), etag)
        except LostRaceError:
            return None

    def unless_removed(self, uri: str, *, patience_s: float) -> tuple[bytes, str] | None:
        """Wait until no removal is in progress; return the head and its ETag, or None if there is none.

        A removal that was cut short counts as ended: its mark is returned, for the caller to replace.

        Raises:
            UnavailableError: the removal is still in progress after `patience_s`.
        """
        began = reported = self._clock.monotonic()
        while (head := self._store.read_with_etag(uri)) and self._is_in_progress(removal_in(head[0], uri)):
            now = self._clock.monotonic()
            if now - began >= patience_s:
                raise UnavailableError(
                    f"{uri.rpartition('/')[0]} is being deleted by retention",
                    found=f"still in progress after {now - began:.0f} s",
                    remedy=f"Run the step again. A removal that was cut short is taken over after {TAKEOVER_S // 60} "
                    "minutes.",
                )
            if now - reported >= REPORT_EVERY_S:
                reported = now
                log.info("waited %.0f s for retention to delete %s", now - began, uri)
            self._clock.sleep(POLL_S)
        return head

    def _is_young_claim(self, data: bytes, uri: str) -> bool:
        document = _mapping(data, uri)
        if "claimed_at" not in document:
            return False
        claimed_at = read_contract(Claim, document, uri).claimed_at
        return (self._clock.now() - claimed_at).total_seconds() < TAKEOVER_S

    def _is_in_progress(self, removal: Removal | None) -> bool:
        return removal is not None and (self._clock.now() - removal.removed_at).total_seconds() < TAKEOVER_S

    def _put(self, uri: str, document: Claim | Removal, etag: str | None) -> str:
        return self._store.put_if(uri, canonical_json(document.model_dump(mode="json")), etag=etag)


def removal_in(data: bytes, uri: str) -> Removal | None:
    """The removal that a head is; None for any other head."""
    document = _mapping(data, uri)
    return read_contract(Removal, document, uri) if "removed_at" in document else None


def exists(data: bytes, uri: str) -> bool:
    """Whether a head makes its artifact or release exist."""
    document = _mapping(data, uri)
    return "removed_at" not in document and "claimed_at" not in document


def _mapping(data: bytes, uri: str) -> Mapping[str, Any]:
    document = parse_json(data, uri)
    return document if isinstance(document, dict) else {}
