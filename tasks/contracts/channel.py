"""The channel: a model's live release, the previous ones, and their history. Pure transitions."""

from datetime import datetime
from typing import Literal, Self

from pydantic import Field

from tasks.contracts.base import Contract

HISTORY_LENGTH = 200


class ChannelEntry(Contract):
    """A release that is or was live."""

    release_id: str
    release_uri: str
    since: datetime


class ChannelEvent(Contract):
    """One change, or one refusal."""

    event: Literal["promoted", "rolled-back", "refused"]
    release_id: str
    at: datetime
    run: str
    reason: str = ""


class Channel(Contract):
    """channels/<name>.json. Changed only by compare-and-swap on its ETag."""

    name: str
    live: ChannelEntry | None = None
    previous: tuple[ChannelEntry, ...] = Field(default=(), description="newest first; still deployed while kept")
    history: tuple[ChannelEvent, ...] = Field(default=(), description="newest first")

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

    def rolled_back(self, *, at: datetime, run: str, reason: str) -> Self:
        """The channel after the newest previous release replaced the live one.

        Raises:
            ValueError: there is no previous release.
        """
        if self.live is None or not self.previous:
            raise ValueError(f"channel {self.name} has no previous release to go back to")
        target = self.previous[0]
        event = ChannelEvent(event="rolled-back", release_id=self.live.release_id, at=at, run=run, reason=reason)
        return self.model_copy(
            update={
                "live": target.model_copy(update={"since": at}),
                "previous": self.previous[1:],
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
