"""What Airflow knows of models: the run that has not ended, and what the reader may do by their rights in Airflow."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import DagRunState
from sqlalchemy import case, func, select

from slipway.airflow.dags.left_behind import RELEASES, ROLLBACKS
from slipway.airflow.other_runs import ACTIVE
from slipway.airflow.page import PREFIX
from slipway.airflow.page.actions import ACTIONS, APPROVAL, Action
from slipway.tasks.pages.models import Doing, Link

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

BUSY = ("running", "deferred", "awaiting_input")


@dataclass(frozen=True)
class Busy:
    """The newest run of a model that has not ended, and the tasks of it that run or wait."""

    run_id: str
    tasks: tuple[str, ...]


def names_of(dag_ids: Iterable[str]) -> list[str]:
    """The models among DAGs."""
    return sorted(dag_id.removeprefix(RELEASES) for dag_id in dag_ids if dag_id.startswith(RELEASES))


@dataclass(frozen=True)
class Person:
    """Who reads, by Airflow's auth manager. `teams` are those of DAGs, where Airflow has teams."""

    user: Any
    teams: Mapping[str, str | None]

    def may(self, method: Any, dag_id: str, entity: DagAccessEntity | None = None) -> bool:
        """Whether they may do that with this DAG."""
        details = DagDetails(id=dag_id, team_name=self.teams.get(dag_id))
        return get_auth_manager().is_authorized_dag(
            method=method, access_entity=entity, details=details, user=self.user
        )


def dag_ids_of(names: Iterable[str]) -> list[str]:
    """The DAGs of models by which a person may do something."""
    return [prefix + name for name in names for prefix in (RELEASES, ROLLBACKS)]


def person(user: Any, dag_ids: list[str], session: "Session") -> Person:
    """The reader, with the teams of these DAGs."""
    of_all = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)  # from Airflow 3.2 on
    if of_all is not None:
        return Person(user, of_all(dag_ids, session=session))
    return Person(user, {dag_id: DagModel.get_team_name(dag_id, session=session) for dag_id in dag_ids})


def doing(names: Collection[str], reader: Person, session: "Session", base: str) -> dict[str, Doing]:
    """What is done with each model, and what the reader may do. `base` is the path of Airflow's own pages."""
    busy = busy_runs(names, session)
    return {name: _doing(name, busy.get(name), reader, base) for name in names}


def busy_runs(names: Iterable[str], session: "Session") -> dict[str, Busy]:
    """The newest run of each model that has not ended; one that runs hides those that wait for it."""
    dag_ids = [f"{RELEASES}{name}" for name in names]
    running = func.max(case((DagRun.state == DagRunState.RUNNING, DagRun.id)))
    newest = select(func.coalesce(running, func.max(DagRun.id)))
    newest = newest.where(DagRun.dag_id.in_(dag_ids), DagRun.state.in_(ACTIVE))
    at_work = (TaskInstance.dag_id == DagRun.dag_id) & (TaskInstance.run_id == DagRun.run_id)
    found = session.execute(
        select(DagRun.dag_id, DagRun.run_id, TaskInstance.task_id)
        .outerjoin(TaskInstance, at_work & TaskInstance.state.in_(BUSY))
        .where(DagRun.id.in_(newest.group_by(DagRun.dag_id)))
    )
    tasks: dict[tuple[str, str], list[str]] = {}
    for dag_id, run_id, task_id in found:
        tasks.setdefault((dag_id, run_id), []).extend([task_id] if task_id else [])
    return {
        dag_id.removeprefix(RELEASES): Busy(run_id, tuple(sorted(of_run))) for (dag_id, run_id), of_run in tasks.items()
    }


def allowed(name: str, busy: Busy | None, reader: Person) -> list[str]:
    """The keys of the actions that the reader may take with this model now."""

    def may(action: Action) -> bool:
        if action.is_answer:
            waits = busy is not None and APPROVAL in busy.tasks
            return waits and reader.may("PUT", action.prefix + name, DagAccessEntity.HITL_DETAIL)
        return reader.may("POST", action.prefix + name, DagAccessEntity.RUN)

    return [key for key, action in ACTIONS.items() if may(action)]


def _doing(name: str, busy: Busy | None, reader: Person, base: str) -> Doing:
    run = f"{base}/dags/{RELEASES}{name}/runs/{quote(busy.run_id, safe='')}" if busy else ""
    forms = f"{base}{PREFIX}/models/{name}"
    return Doing(
        Link(", ".join(busy.tasks) or "starting", run) if busy else None,
        tuple(Link(ACTIONS[key].text, f"{forms}/{key}") for key in allowed(name, busy, reader)),
    )
