"""The routes of the pages. Airflow lets anybody call a plugin's routes, so each asks the auth manager itself."""

import functools
from datetime import UTC, datetime
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse

from slipway.airflow.page import PREFIX
from slipway.airflow.page.documents import Documents, client_of
from slipway.airflow.page.doing import doing, names_of, person
from slipway.airflow.site import current_site
from slipway.pages.models import DAYS, read_rows
from slipway.pages.templates import POLICY, render
from slipway.tasks.contracts.stored.artifact import Layout

HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'self'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
PAGE_ROWS = 100

app = FastAPI(title="Slipway", openapi_url=None)


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
    shown = names[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    site = current_site()
    base = str(request.scope.get("root_path", "")).removesuffix(PREFIX)
    text = render(
        "models.html.j2",
        rows=read_rows(shown, Layout(site.object_store.root), documents()),
        doing=doing(shown, person(user, shown, session), session, base),
        count=len(names),
        page=page,
        pages=max(1, -(-len(names) // PAGE_ROWS)),
        days=DAYS,
        now=datetime.now(UTC),
        hub=site.hub.endpoint,
    )
    return HTMLResponse(text, headers=HEADERS)
