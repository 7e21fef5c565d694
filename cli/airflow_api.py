"""Airflow's REST API (v2, as of Airflow 3.3.2), as far as releases need it. The one place that knows its shapes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from tasks.contracts.errors import InputError, UnavailableError
from tasks.contracts.release import StepResult

REQUEST_TIMEOUT_S = 15.0
BODY_CHARS = 256
LAST_LINES = 10
FINAL_RUN_STATES = frozenset({"success", "failed"})
FINAL_TASK_STATES = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
RESULT_KEY = "return_value"
WIRING = "EmptyOperator"
"""Tasks of this operator do no work; they join other tasks."""


class RunExistsError(InputError):
    """The run id is taken."""


class NoSuchDagError(InputError):
    """Airflow has no such DAG, or has not read it yet."""


@dataclass(frozen=True)
class Login:
    """How to be let in: a token, or user and password to get one with. None of them is ever printed."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Run:
    """A DAG run."""

    dag_id: str
    run_id: str
    state: str
    started_at: datetime | None
    ended_at: datetime | None
    conf: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether its state is final."""
        return self.state in FINAL_RUN_STATES


@dataclass(frozen=True)
class Task:
    """A task of a run. `state` is None until the scheduler looks at it."""

    task_id: str
    state: str | None
    try_number: int
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def ended(self) -> bool:
        """Whether its state is final."""
        return self.state in FINAL_TASK_STATES


@dataclass(frozen=True)
class TaskError:
    """What a task's log ends with: the exception, or the last lines when there is none."""

    kind: str
    message: str
    last_lines: tuple[str, ...]


class Airflow:
    """A connection to one Airflow. Not for use by several threads."""

    def __init__(self, address: str, login: Login) -> None:
        self.address = address.rstrip("/")
        self._login = login
        self._token = login.token
        self._client = httpx.Client(base_url=self.address, timeout=REQUEST_TIMEOUT_S, follow_redirects=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run_url(self, run: Run) -> str:
        """Where a person looks at the run."""
        return f"{self.address}/dags/{quote(run.dag_id)}/runs/{quote(run.run_id)}"

    def trigger(self, dag_id: str, conf: Mapping[str, Any], run_id: str | None = None) -> Run:
        """Start a run.

        Raises:
            RunExistsError: `run_id` is taken.
            NoSuchDagError: there is no such DAG.
            InputError: the DAG is paused, or does not take `conf`.
            UnavailableError: Airflow does not answer.
        """
        if self._get(_path(dag_id), missing=_no_such_dag(dag_id))["is_paused"]:
            raise InputError(
                f"DAG {dag_id} is paused, so that a run of it would wait for ever. Unpause it at {self.address}."
            )
        body = {"logical_date": None, "conf": dict(conf)} | ({"dag_run_id": run_id} if run_id else {})
        answer = self._send("POST", _path(dag_id, "dagRuns"), json=body)
        if answer.status_code == httpx.codes.CONFLICT:
            raise RunExistsError(f"run {run_id} of {dag_id} exists already. Give another run id, or follow that run.")
        return _run(self._checked(answer, _no_such_dag(dag_id)))

    def run(self, dag_id: str, run_id: str) -> Run:
        """One run.

        Raises:
            InputError: there is no such run.
        """
        missing = InputError(f"DAG {dag_id} has no run {run_id}. `slipway status` lists the newest runs.")
        return _run(self._get(_path(dag_id, "dagRuns", run_id), missing=missing))

    def runs(self, dag_id: str, limit: int) -> list[Run]:
        """The newest runs, newest first."""
        query = {"limit": limit, "order_by": "-run_after"}
        found = self._get(_path(dag_id, "dagRuns"), query, missing=_no_such_dag(dag_id))
        return [_run(run) for run in found["dag_runs"]]

    def tasks(self, run: Run) -> list[Task]:
        """The run's tasks but for those that do no work, in no promised order."""
        found = self._get(_path(run.dag_id, "dagRuns", run.run_id, "taskInstances"), {"limit": 100})
        return [
            Task(
                task["task_id"],
                task["state"],
                task["try_number"],
                _time(task["start_date"]),
                _time(task["end_date"]),
            )
            for task in found["task_instances"]
            if task["operator"] != WIRING
        ]

    def result(self, run: Run, task_id: str) -> StepResult | None:
        """What the step reported; None when it has reported nothing."""
        path = _path(run.dag_id, "dagRuns", run.run_id, "taskInstances", task_id, "xcomEntries", RESULT_KEY)
        answer = self._send("GET", path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        value = self._checked(answer)["value"]
        try:
            return StepResult.model_validate(json.loads(value) if isinstance(value, str) else value)
        except (ValueError, ValidationError):
            return None

    def log(self, run: Run, task: Task) -> list[dict[str, Any]]:
        """Events of the task's current try; none when there is no log yet."""
        path = _path(run.dag_id, "dagRuns", run.run_id, "taskInstances", task.task_id, "logs", str(task.try_number))
        answer = self._send("GET", path, params={"full_content": "true"}, headers={"Accept": "application/json"})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return []
        content = self._checked(answer)["content"]
        return [event if isinstance(event, dict) else {"event": str(event)} for event in content]

    def error(self, run: Run, task: Task) -> TaskError:
        """Why the task failed, as its log says."""
        events = self.log(run, task)
        texts = (str(event["event"]).strip() for event in events if event.get("event"))
        # "::group::" and the like are marks for Airflow's own page
        lines = [text.splitlines()[0][:BODY_CHARS] for text in texts if text and not text.startswith("::")]
        last_lines = tuple(lines[-LAST_LINES:])
        for event in reversed(events):
            if details := event.get("error_detail"):
                return TaskError(details[0]["exc_type"], details[0]["exc_value"], last_lines)
        return TaskError("", lines[-1] if lines else "its log is empty", last_lines)

    def dags(self, prefix: str) -> list[str]:
        """Ids of the DAGs that begin with `prefix`."""
        found = self._get("/api/v2/dags", {"dag_id_pattern": prefix, "limit": 100})
        return sorted(dag["dag_id"] for dag in found["dags"] if dag["dag_id"].startswith(prefix))

    def answer(self, run: Run, task_id: str, option: str) -> None:
        """Answer a task that waits for a person.

        Raises:
            InputError: it waits for nobody, or was answered already.
        """
        path = _path(run.dag_id, "dagRuns", run.run_id, "taskInstances", task_id, "-1", "hitlDetails")
        missing = InputError(f"{task_id} of run {run.run_id} waits for nobody. `slipway status` shows what runs.")
        answer = self._send("PATCH", path, json={"chosen_options": [option], "params_input": {}})
        if answer.status_code == httpx.codes.CONFLICT:
            raise InputError(f"{task_id} of run {run.run_id} was answered already; an answer is final.")
        self._checked(answer, missing)

    def _get(
        self, path: str, query: Mapping[str, Any] | None = None, *, missing: InputError | None = None
    ) -> dict[str, Any]:
        return self._checked(self._send("GET", path, params=dict(query or {})), missing)

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send with a token; a token that Airflow no longer takes is renewed once."""
        headers = request.pop("headers", {})
        fresh = self._token is None
        while True:
            if self._token is None:
                self._token = self._new_token()
            bearer = {"Authorization": f"Bearer {self._token}"}
            answer = self._request(method, path, headers=headers | bearer, **request)
            if answer.status_code != httpx.codes.UNAUTHORIZED or fresh or self._login.password is None:
                return answer
            self._token, fresh = None, True

    def _new_token(self) -> str:
        if not (self._login.user and self._login.password):
            raise InputError(
                f"Airflow at {self.address} asks who you are: set SLIPWAY_AIRFLOW_TOKEN, "
                "or SLIPWAY_AIRFLOW_USER and SLIPWAY_AIRFLOW_PASSWORD."
            )
        body = {"username": self._login.user, "password": self._login.password}
        answer = self._request("POST", "/auth/token", json=body)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise InputError(
                f"Airflow at {self.address} refused user {self._login.user}. "
                "Check SLIPWAY_AIRFLOW_USER and SLIPWAY_AIRFLOW_PASSWORD."
            )
        return str(self._checked(answer)["access_token"])

    def _request(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **request)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise InputError(
                f"SLIPWAY_AIRFLOW is {self.address!r} ({error}); expected an address such as http://127.0.0.1:8080."
            ) from error
        except httpx.TransportError as error:
            raise UnavailableError(
                f"Airflow at {self.address} does not answer ({error}). Is it up, and is SLIPWAY_AIRFLOW right?"
            ) from error

    def _checked(self, answer: httpx.Response, missing: InputError | None = None) -> dict[str, Any]:
        if answer.is_success:
            return _document(answer)
        if answer.status_code == httpx.codes.NOT_FOUND and missing is not None:
            raise missing
        words = f"Airflow at {self.address} answered {answer.request.method} {answer.request.url.path} with "
        words += f"{answer.status_code}: {_detail(answer)}"
        if answer.is_server_error or answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise UnavailableError(f"{words}. Try again; its own log says more.")
        if answer.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            raise InputError(f"{words}. Check the token, or the role of the user.")
        raise InputError(f"{words}.")


def progress_lines(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the step printed, newest first."""
    return (str(event["event"]).strip() for event in reversed(events) if event.get("event"))


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError as error:
        raise InputError(
            f"{answer.request.url} answered with {answer.headers.get('content-type', 'no content type')}, "
            "expected JSON. Is SLIPWAY_AIRFLOW the address of an Airflow 3?"
        ) from error
    return document if isinstance(document, dict) else {"value": document}


def _detail(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = answer.reason_phrase
    if isinstance(detail, list):
        detail = "; ".join(f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg')}" for one in detail)
    return " ".join(str(detail).split())[:BODY_CHARS].rstrip(".")


def _path(dag_id: str, *parts: str) -> str:
    return "/".join(["/api/v2/dags", *(quote(part, safe="") for part in (dag_id, *parts))])


def _run(document: Mapping[str, Any]) -> Run:
    return Run(
        document["dag_id"],
        document["dag_run_id"],
        document["state"],
        _time(document["start_date"]),
        _time(document["end_date"]),
        document["conf"] or {},
    )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _no_such_dag(dag_id: str) -> NoSuchDagError:
    return NoSuchDagError(
        f"Airflow has no DAG {dag_id}. Is there a spec of that name in its specs folder, and is the spec valid "
        "(`slipway validate FILE`)? A new spec is read within seconds."
    )
