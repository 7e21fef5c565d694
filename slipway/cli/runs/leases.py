"""Which runs hold models, and whether they have ended, so that what they left in the cluster is nobody's."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from slipway.cli.json_documents import Held
from slipway.cli.settings import Settings
from slipway.tasks.adapters.kube.lease_object import LeaseHolder, holder_of
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.lease import DagRun, lease_of, model_of


def held(settings: Settings, name: str) -> Held | None:
    """The run that holds a model; None if none does."""
    holder = settings.cluster().lease_holder(lease_of(name))
    return _held_by(settings, holder) if holder else None


def held_models(settings: Settings) -> dict[str, Held]:
    """The runs that hold models, by model."""
    holders = {}
    for lease in settings.cluster().find("Lease", {}):
        model = model_of(lease["metadata"]["name"])  # None: of a group, or not of Slipway
        if model and (holder := holder_of(lease)):
            holders[model] = holder
    return {model: _held_by(settings, holder) for model, holder in sorted(holders.items())}


def lines(settings: Settings, name: str) -> Iterator[RenderableType]:
    """The run that holds a model, in words."""
    run = held(settings, name)
    if run is not None and not run.ended:
        yield Text(f"lease     {_since(run)}")
    elif run is not None:
        yield from _left(name, run)


def lines_of_all(settings: Settings, members: tuple[str, ...] = ()) -> Iterator[RenderableType]:
    """The runs that hold models, or one of these, although they have ended, in words."""
    for name, run in held_models(settings).items():
        if run.ended and (not members or name in members):
            yield from _left(name, run)


def _left(name: str, run: Held) -> Iterator[RenderableType]:
    hint = f"`slipway restore {name}` removes it; Airflow's DAG remove_failed_pods does hourly."
    yield Text(f"lease     {_since(run)}; that run has ended, and may have left a candidate behind", "bold red")
    yield Text(f"{'':<9} → {hint}", "bold red")


def _since(run: Held) -> str:
    return f"run {run.run}, since {run.since:%Y-%m-%d %H:%M:%S} UTC"


def _held_by(settings: Settings, holder: LeaseHolder) -> Held:
    run = DagRun.parse(holder.dag_run)
    ended = run is not None and _has_ended(settings, run)
    return Held(run=str(run or holder.holder), since=holder.since, ended=ended)


def _has_ended(settings: Settings, run: DagRun) -> bool:
    with settings.airflow() as airflow:
        try:
            return airflow.run(run.dag_id, run.run_id).ended
        except InputError:  # it was deleted
            return True
