"""`slipway status`: what is live, its address and its newest runs. It changes nothing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from slipway.cli.airflow.api import Run
from slipway.cli.arguments import AsJson, finite, settings_of
from slipway.cli.console import console_on
from slipway.cli.error_text import parts
from slipway.cli.json_documents import ModelStatus
from slipway.cli.kube.route import external
from slipway.cli.model_names import model_names
from slipway.cli.runs import leases
from slipway.cli.runs.channels import live_adapters, read_channel
from slipway.cli.runs.fleets import fleet_of
from slipway.cli.runs.releases import dag_of
from slipway.cli.runs.served import restore_hint, unserved
from slipway.cli.runs.states import CHANNELS, NEWEST_RUNS, channel_of, every_model_state, model_states, states_of
from slipway.cli.runs.tables import adapter_lines, channel_lines
from slipway.cli.runs.watch import watch
from slipway.cli.settings import Settings
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError, PipelineError

UNKNOWN = "unknown"


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
        document = states_of(settings, members or (name,)) if name else every_model_state(settings)
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
    channel = read_channel(store, layout, name)
    lines = [*channel_lines(channel), *adapter_lines(live_adapters(store, layout, channel))]
    yield from (Text(line) for line in lines)


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


def _run_line(run: Run) -> str:
    started = f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC" if run.started_at else "not started"
    took = f" in {(run.ended_at - run.started_at).total_seconds():.0f} s" if run.started_at and run.ended_at else ""
    return f"{run.run_id}  {run.state}{took}  {started}"


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
