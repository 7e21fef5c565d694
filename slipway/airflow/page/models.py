"""A row for each model: what its channel and its live release say, and what its newest run does."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import DagRunState
from sqlalchemy import func, select

from slipway.airflow.left_behind import RELEASES
from slipway.airflow.site import current_site
from slipway.airflow.step_documents import s3_client
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.redaction import bounded, printable, redacted
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel, ChannelEvent
from slipway.tasks.contracts.stored.release import Release

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy.orm import Session

    from slipway.airflow.page.documents import Documents

Document = TypeVar("Document", Channel, Release)
DAYS = 30
"""How far back the strip of a model's events goes."""
WORDS = {"promoted": "promoted", "rolled-back": "rolled back", "refused": "refused"}
REASON_CHARS = 300
BUSY = ("running", "deferred", "awaiting_input")


@dataclass(frozen=True)
class Busy:
    """A run that has not ended, and the tasks of it that run or wait."""

    run_id: str
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class ModelRow:
    """What is shown of a model. Texts of strangers are bounded, and show their control characters."""

    name: str
    channel: Channel | None
    live: Release | None
    busy: Busy | None
    events: tuple[ChannelEvent, ...]
    """Of the last DAYS days, oldest first."""

    @property
    def verdict(self) -> str:
        """The newest event in words, such as `refused: 2 of 3 smoke answers wrong`."""
        event = self.channel.history[0] if self.channel and self.channel.history else None
        return words_of(event) if event else "never released"


def words_of(event: ChannelEvent) -> str:
    """An event of a channel in words."""
    reason = printable(redacted(bounded(event.reason, REASON_CHARS)))
    return f"{WORDS[event.event]}: {reason}" if reason else WORDS[event.event]


def names_of(dag_ids: "Iterable[str]") -> list[str]:
    """The models among the DAGs that a person may read."""
    return sorted(dag_id.removeprefix(RELEASES) for dag_id in dag_ids if dag_id.startswith(RELEASES))


def rows_of(names: "Collection[str]", documents: "Documents", session: "Session", now: datetime) -> list[ModelRow]:
    """A row for each model.

    Raises:
        Exception: the object store cannot be read; botocore's errors have no common base class.
    """
    site = current_site()
    layout, client = Layout(site.object_store.root), s3_client(site.airflow.aws_conn_id)
    stored = documents.read((layout.channel(name) for name in names), client)
    channels = {name: _read(Channel, stored.get(layout.channel(name))) for name in names}
    live = {name: channel.live.release_uri for name, channel in channels.items() if channel and channel.live}
    releases = documents.read(live.values(), client)
    busy = busy_runs(names, session)
    since = now - timedelta(days=DAYS)
    return [
        ModelRow(
            name=name,
            channel=channel,
            live=_read(Release, releases.get(live.get(name, ""))),
            busy=busy.get(name),
            events=tuple(event for event in reversed(channel.history) if event.at >= since) if channel else (),
        )
        for name, channel in channels.items()
    ]


def busy_runs(names: "Iterable[str]", session: "Session") -> dict[str, Busy]:
    """The newest run of each model that has not ended."""
    dag_ids = [f"{RELEASES}{name}" for name in names]
    newest = select(func.max(DagRun.id)).where(DagRun.dag_id.in_(dag_ids), DagRun.state == DagRunState.RUNNING)
    runs = session.scalars(select(DagRun).where(DagRun.id.in_(newest.group_by(DagRun.dag_id)))).all()
    found = {}
    for run in runs:
        tasks = select(TaskInstance.task_id).where(
            TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id, TaskInstance.state.in_(BUSY)
        )
        found[run.dag_id.removeprefix(RELEASES)] = Busy(run.run_id, tuple(sorted(session.scalars(tasks))))
    return found


def _read(kind: type[Document], data: bytes | None) -> Document | None:
    """The document; None where there is none, or none that this version can read."""
    try:
        return read_contract_json(kind, data, kind.__name__) if data is not None else None
    except InputError:
        return None
