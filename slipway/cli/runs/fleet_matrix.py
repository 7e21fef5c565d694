"""What is live of each model of a fleet, and how it was judged: what `slipway explain` shows of a fleet."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from slipway.cli.json_documents import FleetMember
from slipway.cli.runs.tables import COMMIT_DIGITS
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.fit.ledger import Ledger
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import Release

if TYPE_CHECKING:
    from slipway.tasks.adapters.store.object_store import ObjectStore
    from slipway.tasks.contracts.stored.artifact import Layout

COLUMNS = ("model", "on", "format", "engine", "live since", "last verdict", "tokens/s", "cost of 1M tokens")


def member(store: "ObjectStore", layout: "Layout", name: str) -> FleetMember:
    """What the store says of one model: its live release, or else the newest one that was judged."""
    uri = layout.channel(name)
    stored = store.read_with_etag(uri)
    channel = read_contract_json(Channel, stored[0], uri) if stored else Channel(name=name)
    live, newest = channel.live, next(iter(channel.history), None)
    judged = [event for event in channel.history if live is None or event.release_id == live.release_id]
    measured = next((event.run for event in judged if live is None or event.event == "promoted"), None)
    release = live.release_id if live else newest.release_id if newest else None
    uri = live.release_uri if live else layout.release(name, release) if release else ""
    facts = {**_of_release(store, uri), **_of_load(store, layout, name, release, measured)}
    return FleetMember(
        name=name,
        release=live.release_id if live else None,
        since=live.since if live else None,
        verdict=newest.event if newest else None,
        judged_at=newest.at if newest else None,
        reason=newest.reason if newest else "",
        **facts,
    )


def _of_release(store: "ObjectStore", uri: str) -> dict[str, str]:
    stored = store.read_with_etag(uri) if uri else None
    if stored is None:  # there is none, or it was deleted
        return {}
    read = read_contract_json(Release, stored[0], uri)
    spec = read.spec
    return {
        "on": spec.engine.gpu or spec.serving.shape or "",
        "format": spec.quantization.format,
        "engine_kind": spec.engine.kind,
        "engine": read.plan.stages["build"].key,
    }


def _of_load(
    store: "ObjectStore", layout: "Layout", name: str, release: str | None, run: str | None
) -> dict[str, str | float | None]:
    """What the level of load with the most tokens gave and cost."""
    uri = f"{layout.evidence(name, release, run)}/cost.json" if release and run else ""
    stored = store.read_with_etag(uri) if uri else None
    costs = read_contract_json(Ledger, stored[0], uri) if stored else None
    if costs is None or not costs.levels:
        return {}
    best = max(costs.levels, key=lambda level: level.tokens_per_s)
    return {
        "tokens_per_s": best.tokens_per_s,
        "level": best.level,
        "cost_per_million_tokens": best.cost_per_million_tokens,
        "currency": costs.currency,
    }


def matrix(name: str, members: Sequence[FleetMember]) -> Iterator[RenderableType]:
    """The matrix as a table, why models were refused, and what to ask next."""
    table = Table(title=f"fleet {name}", title_justify="left", title_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in COLUMNS[-2:] else "left")
    for each in members:
        table.add_row(*_row(each))
    yield table
    for each in members:
        if each.reason:
            yield Text(f"{each.name}: {each.verdict}: {each.reason}")
    yield Text(f"why: `slipway explain {members[0].name}`, or another model's name; each is rolled back by itself")


def _row(each: FleetMember) -> Iterator[str]:
    yield each.name
    yield each.on
    yield each.format
    yield f"{each.engine_kind} {each.engine[:COMMIT_DIGITS]}".strip()
    yield f"{each.since:%Y-%m-%d %H:%M} UTC" if each.since else "nothing is live"
    yield f"{each.verdict} {each.judged_at:%Y-%m-%d %H:%M} UTC" if each.verdict and each.judged_at else "none"
    yield "" if each.tokens_per_s is None else f"{each.tokens_per_s:.4g}"
    cost = each.cost_per_million_tokens
    yield "" if cost is None else f"{cost:.4g} {each.currency}"
