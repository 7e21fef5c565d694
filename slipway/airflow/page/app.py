"""The page's only route. Airflow lets anybody call a plugin's routes, so this one asks the auth manager itself."""

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from slipway.airflow.left_behind import RELEASES
from slipway.airflow.page.documents import Documents
from slipway.airflow.page.models import DAYS, names_of, rows_of, words_of
from slipway.airflow.site import current_site

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
}
PAGE_ROWS = 100
UNREADABLE = "The object store cannot be read, so what is live is not shown. The API server's log says why."
DOCUMENTS = Documents()

log = logging.getLogger(__name__)
app = FastAPI(title="Slipway", openapi_url=None)
templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


@app.get("/", response_class=HTMLResponse)
def all_models(user: GetUserDep, session: SessionDep, page: Annotated[int, Query(ge=1)] = 1) -> HTMLResponse:
    """Every model whose release DAG the reader may see, PAGE_ROWS to a page."""
    names = names_of(get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session))
    shown = names[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    try:
        rows, problem = rows_of(shown, DOCUMENTS, session, datetime.now(UTC)), ""
    except Exception:  # botocore's errors have no common base class
        log.exception("the channels of the models cannot be read")
        rows, problem = [], UNREADABLE
    text = templates.get_template("models.html.j2").render(
        rows=rows,
        names=shown,
        problem=problem,
        page=page,
        pages=max(1, -(-len(names) // PAGE_ROWS)),
        days=DAYS,
        words_of=words_of,
        releases=RELEASES,
        hub=current_site().hub.endpoint,
    )
    return HTMLResponse(text, headers=HEADERS)
