"""The channel: a model's live release, the previous ones, and their history. Pure transitions."""

from datetime import datetime
from typing import Literal, Self

from pydantic import Field

from slipway.tasks.contracts.base import DNS_LABEL, Contract
from slipway.tasks.contracts.kubernetes_text import ReleaseId

HISTORY_LENGTH = 200


ReleaseState = Literal["live", "previous", "promoted", "rolled-back", "refused"]
"""What became of a release: it is live, still deployed, or what last happened to it."""


class ChannelEntry(Contract):
    """A release that is or was live."""

    release_id: ReleaseId
    release_uri: str
    since: datetime


class ChannelEvent(Contract):
    """One change, or one refusal."""

    event: Literal["promoted", "rolled-back", "refused"]
    release_id: ReleaseId
    at: datetime
    run: str
    reason: str = ""


class Channel(Contract):
    """channels/<name>.json. Changed only by compare-and-swap on its ETag."""

    name: str = Field(pattern=DNS_LABEL)
    live: ChannelEntry | None = None
    previous: tuple[ChannelEntry, ...] = Field(default=(), description="newest first; still deployed while kept")
    history: tuple[ChannelEvent, ...] = Field(default=(), description="newest first")

    def entry(self, release_id: str) -> ChannelEntry | None:
        """The live or a previous release; None if the channel leads to it no more."""
        entries = (self.live, *self.previous)
        return next((entry for entry in entries if entry and entry.release_id == release_id), None)

    def state_of(self, release_id: str) -> ReleaseState | None:
        """What became of a release; None if the channel does not know it."""
        if self.live and self.live.release_id == release_id:
            return "live"
        if any(entry.release_id == release_id for entry in self.previous):
            return "previous"
        return next((event.event for event in self.history if event.release_id == release_id), None)

    def precedes(self, other: Self) -> bool:
        """Whether `other` is a later state of this channel: its history is this one's, with newer events before it."""
        if not self.history:
            return bool(other.history)
        newer = next((place for place, event in enumerate(other.history) if event == self.history[0]), 0)
        common = other.history[newer:]
        is_whole = len(common) == len(self.history) or len(other.history) == HISTORY_LENGTH  # which drops the oldest
        return newer > 0 and is_whole and common == self.history[: len(common)]

    def promoted(self, release_id: str, release_uri: str, *, at: datetime, run: str, keep: int) -> Self:
        """The channel after `release_id` went live, with at most `keep` releases remembered, the live one included.

        Promoting the live release changes nothing, so that a promotion may be repeated.
        """
        if self.live and self.live.release_id == release_id:
            return self
        entry = ChannelEntry(release_id=release_id, release_uri=release_uri, since=at)
        before = [entry for entry in (self.live, *self.previous) if entry and entry.release_id != release_id]
        return self.model_copy(
            update={
                "live": entry,
                "previous": tuple(before[: keep - 1]),
                "history": self._with(ChannelEvent(event="promoted", release_id=release_id, at=at, run=run)),
            }
        )

    def rolled_back(self, *, at: datetime, run: str, reason: str, to: str | None = None) -> Self:
        """The channel after a previous release replaced the live one: `to`, or the newest. Those between are forgotten.

        Raises:
            ValueError: there is no such previous release.
        """
        place = next((n for n, entry in enumerate(self.previous) if to in {None, entry.release_id}), None)
        if self.live is None or place is None:
            raise ValueError(f"channel {self.name} has no previous release {to or ''} to go back to")
        target = self.previous[place]
        event = ChannelEvent(event="rolled-back", release_id=self.live.release_id, at=at, run=run, reason=reason)
        return self.model_copy(
            update={
                "live": target.model_copy(update={"since": at}),
                "previous": self.previous[place + 1 :],
                "history": self._with(event),
            }
        )

    def refused(self, release_id: str, *, at: datetime, run: str, reason: str) -> Self:
        """The channel after a candidate was refused: only its history changes, once for each run."""
        if any(event.run == run and event.release_id == release_id for event in self.history):
            return self
        event = ChannelEvent(event="refused", release_id=release_id, at=at, run=run, reason=reason)
        return self.model_copy(update={"history": self._with(event)})

    def _with(self, event: ChannelEvent) -> tuple[ChannelEvent, ...]:
        return (event, *self.history)[:HISTORY_LENGTH]
