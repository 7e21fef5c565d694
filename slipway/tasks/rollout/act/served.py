"""Reads what serves a model now: its live release, and the live releases of its group's other models."""

import logging
from dataclasses import dataclass
from pathlib import PurePosixPath

from slipway.tasks.adapters.store.release_documents import ReleaseDocuments
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.serving.rendered.groups import Member

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """What serves a model before a plan of it is carried out."""

    channel: Channel
    live: Release | None = None
    """None: nothing is live, or its release.json cannot be read."""
    unreadable: InputError | None = None
    """Why the live release cannot be read."""
    group: tuple[Member, ...] = ()
    """Live releases of the other models of the spec's group."""

    @classmethod
    def read(cls, spec: ReleaseSpec, documents: ReleaseDocuments) -> "Served":
        """What serves the spec's model. A live release that cannot be read does not prevent the next one.

        Raises:
            InputError: the channel, or the live release of another model of the group, cannot be read.
            UnavailableError: the object store does not answer.
        """
        channel, group = documents.channel(spec.name), spec.serving.group
        others = live_members(group, documents, besides=spec.name) if group else ()
        if channel.live is None:
            return cls(channel, group=others)
        try:
            return cls(channel, documents.release(channel.live.release_uri), group=others)
        except InputError as error:
            log.warning("the live release cannot be compared with: %s", error)
            return cls(channel, unreadable=error, group=others)

    @property
    def live_id(self) -> str | None:
        """The live release's id, which is known even where its release.json cannot be read."""
        return self.channel.live.release_id if self.channel.live else None

    def readable_live(self) -> Release | None:
        """The live release, for a candidate that shares GPUs or requests with it.

        Raises:
            InputError: it cannot be read.
        """
        if self.unreadable is not None:
            raise self.unreadable
        return self.live


def live_members(group: str, documents: ReleaseDocuments, *, besides: str) -> tuple[Member, ...]:
    """Live releases of the group's models other than `besides`, by name.

    Raises:
        InputError: a live release's document cannot be read.
        UnavailableError: the object store does not answer.
    """
    names = sorted(PurePosixPath(item.uri).stem for item in documents.store.list(documents.layout.channels()))
    entries = [documents.channel(name).live for name in names if name != besides]
    members = [Member(documents.release(entry.release_uri), entry.release_uri) for entry in entries if entry]
    return tuple(member for member in members if member.release.spec.serving.group == group)
