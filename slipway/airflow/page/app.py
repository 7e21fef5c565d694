"""The routes of the pages. Airflow lets anybody call a plugin's routes, so each asks the auth manager itself."""

import functools
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup
from sqlalchemy import select
from sqlalchemy.orm import Session

from slipway.airflow.dags.left_behind import RELEASES
from slipway.airflow.page import PREFIX
from slipway.airflow.page.actions import ACTIONS, Order, ask, form_of, new_run_id, order_of, reason_of, signed
from slipway.airflow.page.documents import Documents, client_of
from slipway.airflow.page.doing import Person, allowed, busy_runs, dag_ids_of, doing, names_of, person
from slipway.airflow.runs import run_identity
from slipway.airflow.site import current_site
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.pages.model import read_model
from slipway.tasks.pages.models import DAYS, read_rows, window
from slipway.tasks.pages.run import read_run
from slipway.tasks.pages.templates import FORM_POLICY, POLICY, render

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

Name = Annotated[str, Path(max_length=250)]
Key = Literal["approve", "reject", "release", "roll-back"]

app = FastAPI(title="Slipway", openapi_url=None)


@app.exception_handler(InputError)
def not_set_up(_: Request, error: Exception) -> HTMLResponse:
    """What is missing, of an API server without a valid site file; only who has logged in gets as far as this."""
    return _html("note.html.j2", 500, note=str(error))


@functools.cache
def documents() -> Documents:
    """The documents of this site, kept for all requests."""
    return Documents(lambda: client_of(current_site().airflow.aws_conn_id))


@app.get("/", response_class=HTMLResponse)
def all_models(
    request: Request, user: GetUserDep, session: SessionDep, page: Annotated[int, Query(ge=1, le=10**6)] = 1
) -> HTMLResponse:
    """Every model whose release DAG the reader may see, PAGE_ROWS to a page."""
    names = names_of(get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session))
    asked = window(names, page)
    return _page(
        "models.html.j2",
        window=asked,
        rows=read_rows(asked.shown, _layout(), documents()),
        doing=doing(asked.shown, person(user, dag_ids_of(asked.shown), session), session, _base(request)),
        days=DAYS,
        now=datetime.now(UTC),
    )


@app.get("/models/{name}", response_class=HTMLResponse)
def one_model(request: Request, user: GetUserDep, session: SessionDep, name: Name) -> HTMLResponse:
    """A model whose release DAG the reader may see."""
    reader, busy = _reader(user, name, session), busy_runs([name], session).get(name)
    return _page(
        "model.html.j2",
        model=read_model(name, _layout(), documents(), run_identity(busy.run_id) if busy else ""),
        doing=doing([name], reader, session, _base(request))[name],
        index="../",
    )


@app.get("/models/{name}/{key}", response_class=HTMLResponse)
def confirm(user: GetUserDep, session: SessionDep, name: Name, key: Key) -> HTMLResponse:
    """The form that confirms an action, with what the waiting run found of its candidate."""
    busy, action = busy_runs([name], session).get(name), ACTIONS[key]
    if key not in allowed(name, busy, _reader(user, name, session)):
        raise HTTPException(403, "You may not do that with this model, or not now.")
    dag = session.get(DagModel, f"{action.prefix}{name}")
    if dag is not None and dag.is_paused and not action.is_answer:
        return _html(
            "note.html.j2", 409, note=f"{dag.dag_id} is paused, so its run would not start. Unpause the DAG in Airflow."
        )
    waiting = busy.run_id if busy and action.is_answer else None
    return _page(
        "action.html.j2",
        policy=FORM_POLICY,
        name=name,
        key=key,
        action=action,
        order=Markup(signed(Order(str(user.get_id()), name, key, waiting or new_run_id()))),  # noqa: S704 - made here
        back=f"../{name}",
        trial=read_run(name, run_identity(waiting), _layout(), documents()).trial if waiting else None,
    )


@app.post("/models/{name}/{key}", response_class=HTMLResponse)
async def act(
    request: Request, user: GetUserDep, name: Name, key: Key, form: Annotated[dict[str, str], Depends(form_of)]
) -> Response:
    """Do what a form confirms, and lead back to the model.

    On the event loop: a thread that waited for the API's own threads could hold the last of them.
    """
    order = order_of(form, Order(str(user.get_id()), name, key, ""))
    if refusal := await ask(request, order, reason_of(form, ACTIONS[key])):
        return _html("note.html.j2", 409, note=refusal)
    return RedirectResponse(f"{_base(request)}{PREFIX}/models/{name}", 303)


@app.get("/runs/{dag_id}/{run_id:path}", response_class=HTMLResponse)
def one_run(
    user: GetUserDep,
    session: SessionDep,
    dag_id: Annotated[str, Path(max_length=250)],
    run_id: Annotated[str, Path(max_length=250)],
) -> HTMLResponse:
    """A run of a release, if the reader may see the runs of its DAG. Airflow shows the tab with runs of any DAG."""
    known = session.scalar(select(DagRun.id).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    if known is None or not person(user, [dag_id], session).may("GET", dag_id, DagAccessEntity.RUN):
        raise HTTPException(404, "There is no such run, or you may not see it.")
    if not dag_id.startswith(RELEASES):
        return _page("note.html.j2", note="This is not a run that releases a model.")
    name = dag_id.removeprefix(RELEASES)
    return _page("run.html.j2", run=read_run(name, run_identity(run_id), _layout(), documents()))


def _reader(user: Any, name: str, session: Session) -> Person:
    """The reader of a model.

    Raises:
        HTTPException: there is none, or they may not see it.
    """
    reader = person(user, dag_ids_of([name]), session)
    if session.get(DagModel, f"{RELEASES}{name}") is None or not reader.may("GET", f"{RELEASES}{name}"):
        raise HTTPException(404, "There is no such model, or you may not see it.")
    return reader


def _layout() -> Layout:
    return Layout(current_site().object_store.root)


def _base(request: Request) -> str:
    """Path of Airflow's own pages: the API server may be behind a prefix."""
    return str(request.scope.get("root_path", "")).removesuffix(PREFIX)


def _page(template: str, **values: Any) -> HTMLResponse:
    return _html(template, hub=current_site().hub.endpoint, **values)


def _html(template: str, status: int = 200, policy: str = POLICY, **values: object) -> HTMLResponse:
    headers = HEADERS | {"Content-Security-Policy": f"{policy}; frame-ancestors 'self'"}
    return HTMLResponse(render(template, policy=policy, **values), status, headers)
