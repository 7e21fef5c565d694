"""What the channels say about every model, as metrics: what is live, since when, and when a release is due."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from slipway.tasks.adapters.store.object_store import ObjectStore
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.schedule import next_due
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel, ChannelEntry
from slipway.tasks.contracts.stored.release import Release, UnchangedRun
from slipway.tasks.contracts.wire.exposition import Metric, Sample

log = logging.getLogger(__name__)

LIVE = "slipway_live_release_info"
SINCE = "slipway_live_release_since_timestamp_seconds"
CHECKED = "slipway_release_checked_timestamp_seconds"
DUE = "slipway_release_due_timestamp_seconds"
EVENT = "slipway_channel_event_timestamp_seconds"
BROKEN = "slipway_channel_unreadable"

DESCRIPTIONS = {
    LIVE: "The release that is live, always 1.",
    SINCE: "When the live release was promoted, or made live again.",
    CHECKED: "When a run last promoted a release, or found that the live one is what its spec asks for.",
    DUE: "When the model's schedule asks for the next run after that one.",
    EVENT: "When the channel last had an event of this kind.",
    BROKEN: "1 for a channel that cannot be read.",
}


@dataclass(frozen=True)
class ChannelMetrics:
    """Reads all channels of a site. It writes nothing."""

    store: ObjectStore
    layout: Layout

    def read(self) -> list[Metric]:
        """The metrics of every model; one that cannot be read is a metric as well.

        Raises:
            UnavailableError: the object store does not answer.
            InputError: the credentials are refused, or the bucket is missing.
        """
        samples_by_name: dict[str, list[Sample]] = {name: [] for name in DESCRIPTIONS}
        prefix = self.layout.channels()
        for item in self.store.list(prefix):
            model = item.uri.removeprefix(prefix).removesuffix(".json")
            try:
                samples = list(self._of(model))
            except InputError as error:
                log.warning("the channel of %s is left out: %s", model, error)
                samples = [(BROKEN, Sample(1, {"model": model}))]
            for name, sample in samples:
                samples_by_name[name].append(sample)
        return [Metric(name, "gauge", DESCRIPTIONS[name], tuple(samples)) for name, samples in samples_by_name.items()]

    def _of(self, model: str) -> Iterator[tuple[str, Sample]]:
        uri, own = self.layout.channel(model), {"model": model}
        channel = read_contract_json(Channel, self.store.read_bytes(uri), uri)
        newest: dict[str, datetime] = {}
        for event in channel.history:  # newest first
            newest.setdefault(event.event, event.at)
        for name, at in newest.items():
            yield EVENT, Sample(at.timestamp(), {**own, "event": name})
        if channel.live is None:
            return
        release = read_contract_json(Release, self.store.read_bytes(channel.live.release_uri), channel.live.release_uri)
        yield (
            LIVE,
            Sample(
                1,
                {
                    **own,
                    "release": release.id,
                    "engine": release.spec.engine.kind,
                    "commit": release.plan.source.commit,
                },
            ),
        )
        yield SINCE, Sample(channel.live.since.timestamp(), {**own, "release": release.id})
        checked_at, schedule = self._checked(model, channel.live, release)
        yield CHECKED, Sample(checked_at.timestamp(), own)
        if due := next_due(schedule, checked_at):
            yield DUE, Sample(due.timestamp(), own)

    def _checked(self, model: str, live: ChannelEntry, release: Release) -> tuple[datetime, str | None]:
        uri = self.layout.checked(model)
        document = self.store.read_with_etag(uri)
        checked = read_contract_json(UnchangedRun, document[0], uri) if document else None
        if checked is None or checked.at < live.since:
            return live.since, release.spec.schedule
        return checked.at, checked.schedule
