"""`slipway status` and `slipway explain`: what is live, why, and how to roll back. They change nothing."""

import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from slipway.cli.airflow.api import NoSuchDagError, Run
from slipway.cli.arguments import AsJson, Name, finite, settings_of
from slipway.cli.error_text import parts
from slipway.cli.json_documents import (
    ExplainDocument,
    FleetDocument,
    Live,
    ModelStatus,
    Problem,
    RunState,
    Service,
    StatusDocument,
)
from slipway.cli.kube.route import external
from slipway.cli.model_names import model_names
from slipway.cli.runs import fleet_matrix, leases
from slipway.cli.runs.fleets import fleet_of
from slipway.cli.runs.releases import dag_of
from slipway.cli.runs.screens import console_on
from slipway.cli.runs.served import restore_hint, unserved
from slipway.cli.runs.tables import COMMIT_DIGITS, channel_lines, gate_table
from slipway.cli.runs.watch import watch
from slipway.cli.settings import Settings
from slipway.cli.terminal import echo
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.errors import InputError, PipelineError
from slipway.tasks.contracts.fit.ledger import Ledger
from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.channel import Channel, ChannelEntry, ChannelEvent
from slipway.tasks.contracts.stored.release import Release

if TYPE_CHECKING:
    from slipway.tasks.adapters.kube.kube import Cluster
    from slipway.tasks.adapters.store.object_store import ObjectStore
    from slipway.tasks.contracts.stored.artifact import Layout

T = TypeVar("T")

NEWEST_RUNS = 5
READS_AT_ONCE = 16
CHANNELS, UNKNOWN = "channels", "unknown"


@dataclass(frozen=True)
class Unread:
    """A part that could not be read, among others that were."""

    part: str
    error: PipelineError


@dataclass(frozen=True)
class Section:
    """One part of the status, and the function that reads it."""

    title: str
    read: Callable[[], Iterator[RenderableType | Unread]]


def status(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Name of the model; default: every model.", autocompletion=model_names)
    ] = None,
    keep_watching: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option(metavar="S", min=1, callback=finite, help="With --watch: seconds between two looks.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Show what is live, its address, and the newest runs; of a fleet, a line for each model.

    If a part cannot be read, the others are still shown, and the exit code is 65 or 75, depending on the reason. With
    --watch it is shown in place on a terminal; elsewhere, whenever it has changed.
    """
    settings, console = settings_of(context), console_on()
    if as_json and keep_watching:
        raise InputError("--json prints one document, and --watch shows many", remedy="Leave one of the two out.")
    members = fleet_of(settings, name) if name else ()
    if as_json:
        document = _states(settings, members or (name,)) if name else every_model_state(settings)
        echo(document.model_dump_json(indent=2))
        if worst := max((problem.exit_code for problem in document.problems), default=0):
            raise typer.Exit(worst)
        return
    sections = _of_one(settings, name) if name and not members else _of_all(settings, members)
    if keep_watching:
        watch(console, lambda: [part for section in sections for part in _read(section)[0]], every)
        return
    read = [_read(section) for section in sections]
    for parts_of_section, _ in read:
        for part in parts_of_section:
            console.print(part, soft_wrap=True)
    if worst := max(code for _, code in read):
        raise typer.Exit(worst)


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
    if verify:
        for member in members:
            echo(verified(settings, member))
        return
    store, layout = settings.store()
    document = FleetDocument(name=name, members=[fleet_matrix.member(store, layout, each) for each in members])
    if as_json:
        echo(document.model_dump_json(indent=2))
        return
    console = console_on()
    for part in fleet_matrix.matrix(name, document.members):
        console.print(part, soft_wrap=not isinstance(part, Table))


def explained(store: "ObjectStore", layout: "Layout", name: str) -> ExplainDocument:
    """What `slipway explain --json` prints.

    Raises:
        InputError: no release of the model is live.
    """
    channel = read_channel(store, layout, name)
    live, release = _live_release(store, channel)
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
    live, release = _live_release(store, channel)
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
    _, release = _live_release(store, read_channel(store, layout, name))
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


def _live_release(store: "ObjectStore", channel: Channel) -> tuple[ChannelEntry, Release]:
    live = channel.live
    if live is None:
        name = channel.name
        raise InputError(f"no release of {name} is live", remedy=f"Make one with `slipway release {name}`.")
    return live, read_contract_json(Release, store.read_bytes(live.release_uri), live.release_uri)


def read_channel(store: "ObjectStore", layout: "Layout", name: str) -> Channel:
    """The model's channel.

    Raises:
        InputError: no release of the model was promoted yet.
    """
    uri = layout.channel(name)
    stored = store.read_with_etag(uri)
    if stored is None:
        raise InputError(
            f"no release of {name} was promoted here yet: {uri} does not exist",
            remedy="Check the name: `slipway status` lists the models. A first release gets its channel when it is "
            "promoted.",
        )
    return read_contract_json(Channel, stored[0], uri)


def _of_one(settings: Settings, name: str) -> list[Section]:
    return [
        Section("channel", lambda: _channel(settings, name)),
        Section("service", lambda: _service(settings, name)),
        Section("lease", lambda: leases.lines(settings, name)),
        Section("runs", lambda: _runs(settings, name)),
    ]


def _of_all(settings: Settings, members: tuple[str, ...] = ()) -> list[Section]:
    """Every model, or the members of a fleet."""
    return [
        Section("models", lambda: _models(settings, members)),
        Section("leases", lambda: leases.lines_of_all(settings, members)),
    ]


def _read(section: Section) -> tuple[list[RenderableType], int]:
    """The lines of a section, with why the rest cannot be read, and the exit code of this section alone."""
    read: list[RenderableType] = []
    code = 0
    try:
        for line in section.read():
            if isinstance(line, Unread):
                read += _unknown(line.part, line.error)
                code = code or line.error.exit_code
            else:
                read.append(line)
    except PipelineError as error:
        return read + _unknown(section.title, error), error.exit_code
    return read, code


def _unknown(part: str, error: PipelineError) -> list[RenderableType]:
    statement, remedy = parts(error)
    hint = [Text(f"{'':<9} → {remedy}", "bold yellow")] if remedy else []
    return [Text(f"{part:<9} unknown: {statement}", "yellow"), *hint]


def _channel(settings: Settings, name: str) -> Iterator[RenderableType]:
    store, layout = settings.store()
    yield from (Text(line) for line in channel_lines(read_channel(store, layout, name)))


def _service(settings: Settings, name: str) -> Iterator[RenderableType]:
    cluster = settings.cluster()
    if why := unserved(cluster, name, _named_live(settings, name)):
        yield Text(f"service   {why}", "bold red")
        yield Text(f"{'':<9} → {restore_hint(name)}", "bold red")
    for title, service in (("service", name), ("candidate", f"{name}-candidate")):
        address = cluster.service_address(service)
        if address is None:
            yield Text(f"{title:<9} none")
            continue
        ports = ", ".join(f"{port} {number}" for port, number in address.ports.items())
        outside = external(cluster.get("Service", service) or {"spec": {}})
        pods = ", ".join(sorted(cluster.endpoints(service))) or "no ready pod"
        yield Text(f"{title:<9} {address.host} ({ports}) → {pods}{f'; external {outside}' if outside else ''}")


def _named_live(settings: Settings, name: str) -> str | None:
    """The release that the channel names as live; None if it names none, or cannot be read, which its section says."""
    try:
        live = read_channel(*settings.store(), name).live
    except PipelineError:
        return None
    return live.release_id if live else None


def _runs(settings: Settings, name: str) -> Iterator[RenderableType]:
    with settings.airflow() as airflow:
        runs = airflow.runs(dag_of(name), NEWEST_RUNS)
        yield from (Text(f"run       {_run_line(run)}  {airflow.run_url(run)}") for run in runs)


def _models(settings: Settings, members: tuple[str, ...] = ()) -> Iterator[RenderableType | Unread]:
    unread: dict[str, PipelineError] = {}
    models = [model for model in model_states(settings, unread) if not members or model.name in members]
    if not models and not unread:
        yield Text("no model: put a spec into specs/, or check that SLIPWAY_SPECS names the right folder")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("model", "live", "since", "newest run"):
        table.add_column(column, no_wrap=True)
    for model in models:
        live, known = model.live, not unread.keys() & {CHANNELS, channel_of(model.name)}
        since = f"{live.since:%Y-%m-%d %H:%M} UTC" if live else ""
        table.add_row(model.name, live.release if live else "nothing" if known else UNKNOWN, since, _newest(model))
    yield table
    yield from (Unread(part, error) for part, error in unread.items())


def _newest(model: ModelStatus) -> str:
    if not model.runs:
        return UNKNOWN if model.has_dag is None else "none" if model.has_dag else "no DAG"
    run = model.runs[0]
    return f"{run.state} {run.started_at:%Y-%m-%d %H:%M} UTC" if run.started_at else run.state


def channel_of(name: str) -> str:
    """How the status names a channel that it cannot read."""
    return f"channel of {name}"


def model_states(settings: Settings, unread: dict[str, PipelineError]) -> list[ModelStatus]:
    """Every model of Airflow and of the object store, in the order of their names.

    Why a part cannot be read goes to `unread`, by the part's name.
    """
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(_channels, settings, unread)
        dags: Collection[str] | None = None
        newest: dict[str, RunState] = {}
        try:
            with settings.airflow() as airflow:
                dags = airflow.dags(dag_of(""))
                newest = {dag: RunState.of(airflow, run) for dag, run in airflow.newest_runs(dags).items()}
        except PipelineError as error:
            unread["runs"] = error
        channels = reading.result()
    names = {dag.removeprefix(dag_of("")) for dag in dags or ()} | channels.keys()
    return [
        ModelStatus(
            name=name,
            has_dag=None if dags is None else dag_of(name) in dags,
            live=Live.of(channel.live) if (channel := channels.get(name)) else None,
            previous=[entry.release_id for entry in channel.previous] if channel else [],
            runs=[newest[dag_of(name)]] if dag_of(name) in newest else [],
        )
        for name in sorted(names)
    ]


def _channels(settings: Settings, unread: dict[str, PipelineError]) -> dict[str, Channel | None]:
    """The channel of each model that has one; None where it cannot be read."""
    suffix = ".json"
    try:
        store, layout = settings.store()
        folder = layout.channel("").removesuffix(suffix)
        names = [item.uri.removeprefix(folder).removesuffix(suffix) for item in store.list(folder)]
    except PipelineError as error:
        unread[CHANNELS] = error
        return {}

    def channel(name: str) -> Channel | None:
        try:
            return read_channel(store, layout, name)
        except PipelineError as error:
            unread[channel_of(name)] = error
            return None

    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        return dict(zip(names, pool.map(channel, names), strict=True))


def every_model_state(settings: Settings) -> StatusDocument:
    """Every model, with a problem for each part that cannot be read."""
    problems: list[Problem] = []
    unread: dict[str, PipelineError] = {}
    held = _part(problems, "leases", lambda: leases.held_models(settings)) or {}
    states = model_states(settings, unread)
    models = [model.model_copy(update={"lease": held.get(model.name)}) for model in states]
    return StatusDocument(models=models, problems=[*problems, *(Problem.of(*each) for each in unread.items())])


def _states(settings: Settings, names: tuple[str, ...]) -> StatusDocument:
    documents = [model_state(settings, name) for name in names]
    return StatusDocument(
        models=[model for document in documents for model in document.models],
        problems=[problem for document in documents for problem in document.problems],
    )


def _part(problems: list[Problem], part: str, read: Callable[[], T]) -> T | None:
    """What `read` returns; None, and one more problem, if it cannot be read."""
    try:
        return read()
    except PipelineError as error:
        problems.append(Problem.of(part, error))
        return None


def model_state(settings: Settings, name: str) -> StatusDocument:
    """One model, with a problem for each part that cannot be read."""
    problems: list[Problem] = []
    channel = _part(problems, "channel", lambda: read_channel(*settings.store(), name))
    service = _part(problems, "service", lambda: _address(settings.cluster(), name))
    candidate = _part(problems, "candidate", lambda: _address(settings.cluster(), f"{name}-candidate"))
    lease = _part(problems, "lease", lambda: leases.held(settings, name))
    runs: list[RunState] = []
    has_dag: bool | None = True
    try:
        runs = _run_states(settings, name)
    except PipelineError as error:
        problems.append(Problem.of("runs", error))
        has_dag = False if isinstance(error, NoSuchDagError) else None
    model = ModelStatus(
        name=name,
        has_dag=has_dag,
        live=Live.of(channel.live) if channel else None,
        previous=[entry.release_id for entry in channel.previous] if channel else [],
        service=service,
        candidate=candidate,
        lease=lease,
        runs=runs,
    )
    return StatusDocument(models=[model], problems=problems)


def _address(cluster: "Cluster", service: str) -> Service | None:
    address = cluster.service_address(service)
    if address is None:
        return None
    return Service(host=address.host, ports=dict(address.ports), pods=sorted(cluster.endpoints(service)))


def _run_states(settings: Settings, name: str) -> list[RunState]:
    with settings.airflow() as airflow:
        return [RunState.of(airflow, run) for run in airflow.runs(dag_of(name), NEWEST_RUNS)]


def _run_line(run: Run) -> str:
    started = f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC" if run.started_at else "not started"
    took = f" in {(run.ended_at - run.started_at).total_seconds():.0f} s" if run.started_at and run.ended_at else ""
    return f"{run.run_id}  {run.state}{took}  {started}"


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
