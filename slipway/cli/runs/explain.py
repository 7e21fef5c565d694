"""`slipway explain`: what is live, why, and how to roll back. It changes nothing."""

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from slipway.cli.arguments import AsJson, Name, settings_of
from slipway.cli.console import console_on
from slipway.cli.error_text import print_error
from slipway.cli.json_documents import ExplainDocument, FleetDocument, Problem
from slipway.cli.runs import fleet_matrix
from slipway.cli.runs.channels import live_release, read_channel
from slipway.cli.runs.fleets import fleet_of, of_each
from slipway.cli.runs.tables import COMMIT_DIGITS, gate_table
from slipway.cli.settings import Settings
from slipway.cli.terminal import echo
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.ledger import Ledger
from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.channel import Channel, ChannelEntry, ChannelEvent
from slipway.tasks.contracts.stored.release import Release

if TYPE_CHECKING:
    from slipway.tasks.adapters.store.object_store import ObjectStore
    from slipway.tasks.contracts.stored.artifact import Layout


def explain(
    context: typer.Context,
    name: Name,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check signatures from the Hub's commit to the pods, and print one line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is live, its commit, why it was promoted, and how to roll back; of a fleet, a line for each model.

    With --verify, only one line: that the files of the commit at the Hub, the signed provenance, the signature of the
    release and what its pods loaded agree. If they do not, or one cannot be read, it says which, and the exit code is
    65 or 75. HF_TOKEN is sent to the Hub if it is set.
    """
    settings, console = settings_of(context), console_on()
    if members := fleet_of(settings, name):
        _explain_fleet(settings, name, members, verify=verify, as_json=as_json)
        return
    if verify:
        echo(verified(settings, name))
        return
    if as_json:
        echo(explained(*settings.store(), name).model_dump_json(indent=2))
        return
    for part in explanation(*settings.store(), name):
        console.print(part, soft_wrap=True)


def _explain_fleet(settings: Settings, name: str, members: tuple[str, ...], *, verify: bool, as_json: bool) -> None:
    """Print what can be said of each model, and why nothing can of the others, whose worst code is the exit code."""
    if verify:
        lines, errors = of_each(members, partial(verified, settings))
        for line in lines.values():
            echo(line)
    else:
        read, errors = of_each(members, partial(fleet_matrix.member, *settings.store()))
        problems = [Problem.of(*each) for each in errors.items()]
        _show_fleet(FleetDocument(name=name, members=[*read.values()], problems=problems), as_json=as_json)
    for member, error in errors.items():
        print_error(error, f"{member}: ")
    if errors:
        raise typer.Exit(max(error.exit_code for error in errors.values()))


def _show_fleet(document: FleetDocument, *, as_json: bool) -> None:
    if as_json:
        echo(document.model_dump_json(indent=2))
    elif document.members:
        console = console_on()
        for part in fleet_matrix.matrix(document.name, document.members):
            console.print(part, soft_wrap=not isinstance(part, Table))


def explained(store: "ObjectStore", layout: "Layout", name: str) -> ExplainDocument:
    """What `slipway explain --json` prints.

    Raises:
        InputError: no release of the model is live.
    """
    channel = read_channel(store, layout, name)
    live, release = live_release(store, channel)
    promotion = _promotion(channel, live)
    return ExplainDocument(
        name=name,
        release=release.id,
        since=live.since,
        source=release.plan.source.name,
        commit=release.plan.source.commit,
        promoted_by=promotion.run if promotion else None,
        gate=_gate(store, layout, channel, live)[1] if promotion else None,
        channel=channel,
    )


def explanation(store: "ObjectStore", layout: "Layout", name: str) -> Iterator[RenderableType]:
    """The parts that `slipway explain` prints.

    Raises:
        InputError: no release of the model is live.
    """
    channel = read_channel(store, layout, name)
    live, release = live_release(store, channel)
    yield from (Text(line) for line in _what_runs(release, live))
    yield from _why(store, layout, channel, live)
    yield Text(_rollback_hint(channel))


def verified(settings: Settings, name: str) -> str:
    """The line that `slipway explain --verify` prints.

    Raises:
        SignatureError: a link of the chain does not hold.
        InputError, UnavailableError: a link cannot be checked.
    """
    site = settings.site()
    if site.signing is None or not site.signing.verifies:
        raise InputError(
            f"site {site.name} names no public keys, so nothing can be verified",
            remedy="Name them in signing.public_keys of the site file: docs/day-two.md, Signatures.",
        )
    store, layout = settings.store()
    _, release = live_release(store, read_channel(store, layout, name))
    # the Hub's client and cryptography take half a second to import, which the other commands need not wait for
    from slipway.cli.runs.verification import Verification  # noqa: PLC0415
    from slipway.tasks.adapters.clock import SystemClock  # noqa: PLC0415
    from slipway.tasks.adapters.hub.sources import sources  # noqa: PLC0415
    from slipway.tasks.adapters.sign.signatures import Signatures  # noqa: PLC0415
    from slipway.tasks.adapters.store.artifacts import ArtifactStore  # noqa: PLC0415

    clock = SystemClock()
    hub = sources(site, store, os.environ, clock)
    signatures = Signatures(store, layout, site.signing.public_keys)
    return Verification(ArtifactStore(store, layout, clock), signatures, hub, settings.cluster()).of(release)


def _what_runs(release: Release, live: ChannelEntry) -> Iterator[str]:
    source, spec = release.plan.source, release.spec
    yield f"{release.id} has been live since {live.since:%Y-%m-%d %H:%M:%S} UTC"
    yield f"  source     {source.name}, commit {source.commit}"
    yield f"  format     {spec.quantization.format}, served by {spec.engine.kind}"
    yield f"  rollout    {spec.rollout.words}"
    for stage in STAGES:
        yield f"  {stage:<10} {release.plan.stages[stage].key[:COMMIT_DIGITS]}"


def _why(store: "ObjectStore", layout: "Layout", channel: Channel, live: ChannelEntry) -> Iterator[RenderableType]:
    """Why the live release is live: the gate that it passed, and any rollback since."""
    event = _promotion(channel, live)
    newest = next((event for event in channel.history if event.event != "refused"), None)
    if newest and newest.event == "rolled-back":
        reason = f": {newest.reason}" if newest.reason else ""
        yield Text(f"live again since {newest.release_id} was rolled back at {newest.at:%Y-%m-%d %H:%M:%S} UTC{reason}")
    if event is None:
        yield Text("its promotion is older than the channel's history")
        return
    yield Text(f"promoted by run {event.run} at {event.at:%Y-%m-%d %H:%M:%S} UTC")
    evidence, gate = _gate(store, layout, channel, live)
    if gate is None:
        yield Text(f"{evidence}/gate.json no longer exists")
        return
    yield gate_table(gate)
    costs_uri = f"{evidence}/cost.json"
    if costs := store.read_with_etag(costs_uri):
        yield from _costs(read_contract_json(Ledger, costs[0], costs_uri))
    yield Text(f"report: {store.link(f'{evidence}/report.html')}")


def _gate(
    store: "ObjectStore", layout: "Layout", channel: Channel, live: ChannelEntry
) -> tuple[str, GateReport | None]:
    """The folder of the evidence of the promotion, and the gate's report there; None if it was deleted."""
    event = _promotion(channel, live)
    assert event is not None
    evidence = layout.evidence(channel.name, live.release_id, event.run)
    uri = f"{evidence}/gate.json"
    stored = store.read_with_etag(uri)
    return evidence, read_contract_json(GateReport, stored[0], uri) if stored else None


def _costs(costs: Ledger) -> Iterator[Text]:
    """What the release cost until its gate, and what its tokens cost under the measured load."""
    if costs.currency is None:
        yield Text(f"cost: {costs.gpu_hours:.3g} GPU-hours until its gate; the site names no prices")
        return
    total = "no price" if costs.cost is None else f"{costs.cost:.4g} {costs.currency}"
    yield Text(f"cost: {costs.gpu_hours:.3g} GPU-hours and {total} until its gate")
    for level in costs.levels:
        if (cost := level.cost_per_million_tokens) is not None:
            yield Text(f"  {cost:.4g} {costs.currency} per million output tokens at {level.level}")


def _promotion(channel: Channel, live: ChannelEntry) -> ChannelEvent | None:
    promotions = (event for event in channel.history if event.event == "promoted")
    return next((event for event in promotions if event.release_id == live.release_id), None)


def _rollback_hint(channel: Channel) -> str:
    if not channel.previous:
        another = f"`slipway release {channel.name} --revision R` releases another revision"
        return f"roll back: no previous release is kept; {another}"
    return (
        f'roll back: `slipway rollback {channel.name} --reason "..."` makes {channel.previous[0].release_id} live again'
    )
