"""What a person may do on the pages. Each action is confirmed, and then asked of Airflow's own API as that person."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote

import httpx
from airflow.configuration import conf
from fastapi import HTTPException, Request
from itsdangerous import BadData, URLSafeTimedSerializer

from slipway.airflow.approval import REASON
from slipway.airflow.dags.left_behind import RELEASES, ROLLBACKS

APPROVAL = "approval"
"""The task that asks a person."""
FORM_BYTES = 16 << 10
FORM_S = 3600
"""How long a form may stay open, in seconds."""
PASSED_ON = ("authorization", "cookie")
"""Headers by which Airflow knows a person."""


@dataclass(frozen=True)
class Action:
    """Something to do with a model: what it is called, and what follows from it."""

    text: str
    consequence: str
    needs_reason: bool = False
    prefix: str = RELEASES
    """What the id of its DAG begins with."""
    is_answer: bool = False
    """Whether it answers the question of a run; otherwise it starts one."""


ACTIONS: Mapping[str, Action] = {
    "approve": Action("Approve", "The candidate takes the requests, as its rollout says.", is_answer=True),
    "reject": Action(
        "Reject",
        "The candidate is removed, the run fails, and the live release stays.",
        needs_reason=True,
        is_answer=True,
    ),
    "release": Action("Release", "A run begins with the spec's revision as it is now; what passes its gate goes live."),
    "roll-back": Action(
        "Roll back", "The release that was live before takes all requests.", needs_reason=True, prefix=ROLLBACKS
    ),
}
"""Each action by its part of a form's address, in the order in which they are shown."""


class Order(NamedTuple):
    """What a confirmed form asks for. `run_id` is that of the run to answer, or to start: no form starts two."""

    user_id: str
    name: str
    action: str
    run_id: str


def new_run_id() -> str:
    """The id of a run that a form starts, such as `page-20260102T030405-1a2b3c4d`."""
    return f"page-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def signed(order: Order) -> str:
    """The order as a form carries it. Another site cannot make one, nor use another person's."""
    return str(_serializer().dumps(order))


def order_of(form: Mapping[str, str], expected: Order) -> Order:
    """The order in a form, for the same person, model and action as `expected`.

    Raises:
        HTTPException: it is missing, another's, or older than FORM_S.
    """
    try:
        order = Order(*_serializer().loads(form.get("order", ""), max_age=FORM_S))
    except (BadData, TypeError):
        order = None
    if order is None or order._replace(run_id="") != expected._replace(run_id=""):
        raise HTTPException(403, "This form is not yours, or too old. Open it again from the model's page.")
    return order


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a posted form, each once.

    Raises:
        HTTPException: it has more than FORM_BYTES, or is not text.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES:
            raise HTTPException(413, f"The form has more than {FORM_BYTES >> 10} KiB.")
    try:
        fields = parse_qs(body.decode("ascii"), errors="strict", max_num_fields=8)
    except ValueError as error:
        raise HTTPException(400, "The form is not text.") from error
    return {name: values[0] for name, values in fields.items()}


def reason_of(form: Mapping[str, str], action: Action) -> str:
    """The reason as one line; empty where none is asked for.

    Raises:
        HTTPException: it is missing.
    """
    if not action.needs_reason:
        return ""
    if reason := " ".join(form.get(REASON, "").split()):
        return reason
    raise HTTPException(400, f"{action.text} needs a reason.")


async def ask(request: Request, order: Order, reason: str) -> str:
    """Ask Airflow's API for it, as the person who sent the request: why it was refused, or an empty text.

    The API checks the person's rights, and writes to Airflow's audit log who did what.
    """
    from airflow.api_fastapi.main import app as airflow  # noqa: PLC0415 - the application that serves this request

    method, path, body = _call(order, reason)
    headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
    transport = httpx.ASGITransport(airflow, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://airflow", headers=headers) as client:
        answer = await client.request(method, path, json=body)
    return "" if answer.is_success else f"Airflow answered {answer.status_code}: {_detail(answer)}"


def _call(order: Order, reason: str) -> tuple[str, str, dict[str, Any]]:
    action, given = ACTIONS[order.action], {REASON: reason} if reason else {}
    runs = f"/api/v2/dags/{action.prefix}{order.name}/dagRuns"
    if action.is_answer:
        task = f"{runs}/{quote(order.run_id, safe='')}/taskInstances/{APPROVAL}/-1/hitlDetails"
        return "PATCH", task, {"chosen_options": [action.text], "params_input": given}
    return "POST", runs, {"logical_date": None, "dag_run_id": order.run_id, "conf": given}


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase


def _serializer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(conf.get_mandatory_value("api", "secret_key"), salt=__name__)
