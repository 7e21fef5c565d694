"""All models: a row for each, with what its channel, its live release and its last gate say."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.measured.measurement import LevelSummary
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel, ChannelEvent
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.pages import reading
from slipway.tasks.pages.reading import Reader
from slipway.tasks.pages.texts import EVENTS, why

DAYS = 30
"""How far back the strip of a model's events goes."""
STRIP_DAY_PX = 6.0
PAGE_ROWS = 100
BARS = {"promoted": (1, 16), "refused": (9, 8), "rolled-back": (1, 8)}
"""Where the bar of an event begins, and how tall it is, in pixels of a strip."""


class Mark(NamedTuple):
    """An event in the strip, and where it stands, in pixels from the left."""

    x: float
    event: ChannelEvent


def bar(event: str, x: float) -> str:
    """The bar of an event, as a part of a path of SVG."""
    y, height = BARS[event]
    return f"M{x} {y}h4v{height}h-4z"


@dataclass(frozen=True)
class Link:
    """Something to follow."""

    text: str
    href: str


@dataclass(frozen=True)
class Doing:
    """What is known of a model besides its documents: the step that runs now, and what the reader may do."""

    now: Link | None = None
    actions: tuple[Link, ...] = ()


@dataclass(frozen=True)
class ModelRow:
    """What is shown of a model."""

    name: str
    channel: Channel | None = None
    live: Release | None = None
    gate: GateReport | None = None
    """The report behind the newest event, if that is a refusal by the gate."""
    measured: LevelSummary | None = None
    """What the gate measured of the live release at the lowest level of load."""
    problem: str = ""
    """Why the channel or the live release cannot be shown."""

    @property
    def newest(self) -> ChannelEvent | None:
        """The newest event."""
        return self.history[0] if self.history else None

    @property
    def verdict(self) -> str:
        """The newest event in words, such as `refused: 2 of 3 smoke answers wrong`."""
        return why(self.newest, self.gate) if self.newest else "never released"

    def strip(self, now: datetime) -> tuple[Mark, ...]:
        """The events of the last DAYS days, oldest first."""
        days = [(DAYS - (now - event.at) / timedelta(days=1), event) for event in reversed(self.history)]
        return tuple(Mark(round(day * STRIP_DAY_PX, 1), event) for day, event in days if day >= 0)

    def bars(self, now: datetime) -> dict[str, str]:
        """The strip as one path of SVG for each kind of event: a page has thousands of bars."""
        marks = self.strip(now)
        kinds = dict.fromkeys(mark.event.event for mark in marks)
        return {kind: "".join(bar(kind, mark.x) for mark in marks if mark.event.event == kind) for kind in kinds}

    def strip_words(self, now: datetime) -> str:
        """The same as a sentence, such as `in 30 days: 3 promoted, 1 refused`."""
        counts: Counter[str] = Counter(mark.event.event for mark in self.strip(now))
        return f"in {DAYS} days: " + ", ".join(
            f"{counts[event]} {words}" for event, words in EVENTS.items() if counts[event]
        )

    @property
    def history(self) -> tuple[ChannelEvent, ...]:
        """Every event that the channel remembers, newest first."""
        return self.channel.history if self.channel else ()


@dataclass(frozen=True)
class Window:
    """A page of a list of models: which it shows, and of how many."""

    shown: tuple[str, ...]
    page: int
    pages: int
    count: int


def window(names: Sequence[str], page: int) -> Window:
    """The page with that number, from 1; it shows nothing beyond the last one."""
    pages = max(1, -(-len(names) // PAGE_ROWS))
    return Window(tuple(names[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]), page, pages, len(names))


def gate_uri(layout: Layout, name: str, event: ChannelEvent) -> str:
    """The gate's report of the run behind an event."""
    return f"{layout.evidence(name, event.release_id, event.run)}/gate.json"


def promotion(channel: Channel) -> ChannelEvent | None:
    """The promotion of the live release; None if the channel no longer remembers it."""
    live = channel.live.release_id if channel.live else None
    return next((each for each in channel.history if each.event == "promoted" and each.release_id == live), None)


def read_rows(names: Collection[str], layout: Layout, reader: Reader) -> list[ModelRow]:
    """A row for each model, in that order; two rounds of reading, however many there are."""
    channels = reader.read({layout.channel(name): reading.CHANNEL for name in names})
    wanted = {}
    for name in names:
        channel = channels[layout.channel(name)].value
        if channel and channel.live:
            wanted[channel.live.release_uri] = reading.RELEASE
        if channel and (promoted := promotion(channel)):
            wanted[_summary_uri(layout, name, promoted)] = reading.SUMMARIES
        if channel and channel.history and channel.history[0].event == "refused":
            wanted[gate_uri(layout, name, channel.history[0])] = reading.GATE
    documents = reader.read(wanted)
    return [_row(name, channels[layout.channel(name)], documents, layout) for name in names]


def _summary_uri(layout: Layout, name: str, event: ChannelEvent) -> str:
    return f"{layout.evidence(name, event.release_id, event.run)}/summary.json"


def _row(name: str, stored: reading.Stored, documents: dict[str, reading.Stored], layout: Layout) -> ModelRow:
    channel = stored.value
    if channel is None:
        return ModelRow(name, problem=f"its channel cannot be shown: {stored.problem}" if stored.problem else "")
    live = documents.get(channel.live.release_uri) if channel.live else None
    gate = documents.get(gate_uri(layout, name, channel.history[0])) if channel.history else None
    promoted = promotion(channel)
    summaries = documents[_summary_uri(layout, name, promoted)].value if promoted else None
    own = [each for each in summaries or () if each.target == "candidate"]
    measured = min(own, key=lambda each: each.level, default=None)
    problem = f"its live release cannot be shown: {live.problem}" if live and live.problem else ""
    return ModelRow(name, channel, live.value if live else None, gate.value if gate else None, measured, problem)
