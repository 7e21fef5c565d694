"""What each model is doing, as `slipway status --json` prints it. What cannot be read is a problem of the document."""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from slipway.cli.airflow.api import NoSuchDagError
from slipway.cli.json_documents import (
    Live,
    LiveAdapter,
    ModelStatus,
    Problem,
    RunState,
    Service,
    StatusDocument,
)
from slipway.cli.runs import leases
from slipway.cli.runs.channels import live_adapters, read_channel
from slipway.cli.runs.releases import dag_of
from slipway.cli.settings import Settings
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.stored.channel import Channel

if TYPE_CHECKING:
    from slipway.tasks.adapters.kube.kube import Cluster

T = TypeVar("T")

NEWEST_RUNS = 5
READS_AT_ONCE = 16
CHANNELS = "channels"


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


def channel_of(name: str) -> str:
    """How the status names a channel that it cannot read."""
    return f"channel of {name}"


def every_model_state(settings: Settings) -> StatusDocument:
    """Every model, with a problem for each part that cannot be read."""
    problems: list[Problem] = []
    unread: dict[str, PipelineError] = {}
    held = _part(problems, "leases", lambda: leases.held_models(settings)) or {}
    states = model_states(settings, unread)
    models = [model.model_copy(update={"lease": held.get(model.name)}) for model in states]
    return StatusDocument(models=models, problems=[*problems, *(Problem.of(*each) for each in unread.items())])


def states_of(settings: Settings, names: tuple[str, ...]) -> StatusDocument:
    """The models of these names, as `model_state` reads each."""
    documents = [model_state(settings, name) for name in names]
    return StatusDocument(
        models=[model for document in documents for model in document.models],
        problems=[problem for document in documents for problem in document.problems],
    )


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
    added = _part(problems, "adapters", lambda: live_adapters(*settings.store(), channel)) if channel else None
    model = ModelStatus(
        name=name,
        has_dag=has_dag,
        adapters=[LiveAdapter.of(entry, added.listed) for entry in added.current] if added else [],
        live=Live.of(channel.live) if channel else None,
        previous=[entry.release_id for entry in channel.previous] if channel else [],
        service=service,
        candidate=candidate,
        lease=lease,
        runs=runs,
    )
    return StatusDocument(models=[model], problems=problems)


def _part(problems: list[Problem], part: str, read: Callable[[], T]) -> T | None:
    """What `read` returns; None, and one more problem, if it cannot be read."""
    try:
        return read()
    except PipelineError as error:
        problems.append(Problem.of(part, error))
        return None


def _address(cluster: "Cluster", service: str) -> Service | None:
    address = cluster.service_address(service)
    if address is None:
        return None
    return Service(host=address.host, ports=dict(address.ports), pods=sorted(cluster.endpoints(service)))


def _run_states(settings: Settings, name: str) -> list[RunState]:
    with settings.airflow() as airflow:
        return [RunState.of(airflow, run) for run in airflow.runs(dag_of(name), NEWEST_RUNS)]
