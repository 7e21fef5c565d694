"""The part of Airflow's REST API (v2, as of Airflow 3.3.2) that releases need. Only this module knows its documents."""

import contextlib
import getpass
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Self
from urllib.parse import quote

import httpx
from pydantic import AwareDatetime, ValidationError

from slipway.cli.airflow.login import Login
from slipway.cli.airflow.session import Document, Session, document_of
from slipway.tasks.contracts.base import parse_json
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.pods.pod_failures import EXIT_CODES
from slipway.tasks.contracts.redaction import redacted
from slipway.tasks.contracts.stored.release import FAILED_RESULT_KEY, REMEDY_PREFIX, WHY_KEY, StepResult

TRIGGER_PAUSES_S = (1.0, 4.0)
"""Before each further request for a run whose first one failed."""
REPEATED_WITHIN_S = 10.0
"""After the first request. An Airflow that restarts refuses at once; one that is silent would only hold people up."""
PAGE = 100
"""The most entries that Airflow lists at once, unless it is configured otherwise."""
MAX_DAGS = 10_000
NOTE_CHARS = 1000
"""The longest note of a run."""
ID_CHARS = 40
"""The longest part of a run's id that names a user or a revision. Airflow takes 250 in all."""
LINE_CHARS = 256
LAST_LINES = 10
APPROVAL = "approval"
"""The task that asks a person."""
FINAL_RUN_STATES = frozenset({"success", "failed"})
FINAL_TASK_STATES = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
NOT_OF_AN_ID = re.compile("[^A-Za-z0-9_.-]")
RESULT_KEY = "return_value"
FINAL_ERROR = "AirflowFailException"
"""What the operator raises when a retry cannot help."""
BROKEN_SPECS = "broken_specs.py"
"""The DAG file whose import error names the specs that make no DAG; it lies beside those that make them."""
WIRING = frozenset({"Released", "EmptyOperator"})
"""Tasks of these operators do no work of a release; they only decide whether its run succeeded."""


class _Run(Document):
    dag_id: str
    dag_run_id: str
    state: str
    start_date: AwareDatetime | None
    end_date: AwareDatetime | None
    conf: dict[str, Any] | None

    def read(self) -> "Run":
        """What the command knows of it."""
        return Run(self.dag_id, self.dag_run_id, self.state, self.start_date, self.end_date, self.conf or {})


class _Noted(Document):
    note: str | None


class _Runs(Document):
    dag_runs: list[_Run]
    total_entries: int


class _Task(Document):
    task_id: str
    state: str | None
    try_number: int
    start_date: AwareDatetime | None
    end_date: AwareDatetime | None
    operator: str | None

    def read(self) -> "Task":
        """What the command knows of it. Before Airflow 3.3 a question is deferred while it waits for a person."""
        asks = self.task_id == APPROVAL and self.state == "deferred"
        return Task(
            self.task_id, "awaiting_input" if asks else self.state, self.try_number, self.start_date, self.end_date
        )


class _Tasks(Document):
    task_instances: list[_Task]


class _DagId(Document):
    dag_id: str


class _Dags(Document):
    dags: list[_DagId]
    total_entries: int


class _Described(Document):
    description: str | None


class _Dag(_DagId):
    is_paused: bool
    is_stale: bool
    has_import_errors: bool
    relative_fileloc: str
    bundle_name: str | None


class _ImportError(Document):
    filename: str
    bundle_name: str | None
    stack_trace: str


class _ImportErrors(Document):
    import_errors: list[_ImportError]


class _Service(Document):
    status: str | None


class _Health(Document):
    metadatabase: _Service
    scheduler: _Service
    triggerer: _Service
    dag_processor: _Service | None = None


class _XCom(Document):
    value: Any


class _Exception(Document):
    exc_type: str
    exc_value: str


class LogEvent(Document):
    """One event of a task's log."""

    event: str | None = None
    error_detail: list[_Exception] | None = None


class _Log(Document):
    content: list[LogEvent | str]


class _Anything(Document):
    """An answer of which nothing is read."""


class HasAnswerError(InputError):
    """Somebody has answered what a task asks."""


class RunExistsError(InputError):
    """Another run has this id."""


class NoSuchDagError(InputError):
    """Airflow has no such DAG, or has not read it yet."""


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
    """A task of a run. `state` is None until the scheduler has seen it."""

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
    """Why a task failed: its step's own error, else the exception in its log, else its refusal, else the last line.

    `message` usually ends with `remedy`, which is empty if the step named none; `last_lines` leave it out.
    """

    message: str
    last_lines: tuple[str, ...]
    remedy: str = ""
    final: bool = False
    """Whether another try could not have helped."""


class Airflow:
    """A connection to one Airflow. Not for use by several threads.

    Args:
        address: of its API server.
        login: who asks.
        timeout_s: for how long the command means to wait in all; no answer is waited for much longer than that.
    """

    def __init__(self, address: str, login: Login, timeout_s: float | None = None) -> None:
        self._session = Session(address, login, timeout_s)
        self.address = self._session.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def run_url(self, run: Run) -> str:
        """The run's page in Airflow."""
        return f"{self.address}/dags/{quote(run.dag_id)}/runs/{quote(run.run_id)}"

    def trigger(self, dag_id: str, conf: Mapping[str, Any], run_id: str | None = None) -> Run:
        """Start a run.

        A request that fails may have made the run all the same. So it always names the run, and is repeated.

        Raises:
            RunExistsError: there is a run with `run_id`, perhaps from such a request.
            NoSuchDagError: there is no such DAG, or Airflow cannot read it any more.
            InputError: the DAG is paused, or does not accept `conf`.
            UnavailableError: Airflow does not answer. If a run may have been made, the remedy says how to follow it.
        """
        self.check_startable(dag_id)
        requested_id = run_id or _new_run_id(conf)
        try:
            return self._triggered_once(dag_id, conf, requested_id)
        except RunExistsError:
            if run_id is not None:
                raise
            return self.run(dag_id, requested_id)

    def check_startable(self, dag_id: str) -> None:
        """Check that a run of the DAG would begin.

        Raises:
            NoSuchDagError: there is no such DAG, or Airflow cannot read it any more.
            InputError: the DAG is paused.
        """
        dag = self._session.get(_Dag, _path(dag_id), missing=_no_such_dag(dag_id))
        if error := self._unreadable(dag):
            raise error
        if dag.is_paused:
            raise InputError(
                f"DAG {dag_id} is paused, so a run of it would never start", remedy=f"Unpause it at {self.address}."
            )

    def _triggered_once(self, dag_id: str, conf: Mapping[str, Any], run_id: str) -> Run:
        pauses_s, began = iter(TRIGGER_PAUSES_S), time.monotonic()
        while True:
            try:
                return self._triggered(dag_id, conf, run_id)
            except UnavailableError as error:
                waited_s = time.monotonic() - began
                pause_s = next(pauses_s, None) if waited_s < REPEATED_WITHIN_S else None
                if pause_s is None:
                    raise UnavailableError(
                        error.what,
                        found=error.found,
                        remedy=f"{error.remedy} Airflow may have started the run: the same command with "
                        f"--run-id {run_id} follows it, or starts it.",
                    ) from error
            time.sleep(pause_s)

    def _triggered(self, dag_id: str, conf: Mapping[str, Any], run_id: str) -> Run:
        body = {"logical_date": None, "conf": dict(conf), "dag_run_id": run_id}
        response = self._session.send("POST", _path(dag_id, "dagRuns"), json=body)
        if response.status_code == httpx.codes.CONFLICT:
            raise RunExistsError(
                f"{dag_id} already has a run {run_id}", remedy="Give another run id, or follow that run."
            )
        return self._session.checked(_Run, response, _no_such_dag(dag_id)).read()

    def description(self, dag_id: str) -> str:
        """The DAG's one line about itself; empty if it has none.

        Raises:
            NoSuchDagError: there is no such DAG.
        """
        return self._session.get(_Described, _path(dag_id), missing=_no_such_dag(dag_id)).description or ""

    def has_dag(self, dag_id: str) -> bool:
        """Whether Airflow has the DAG and still reads it; it remembers those whose specs are gone."""
        try:
            return not self._session.get(_Dag, _path(dag_id), missing=_no_such_dag(dag_id)).is_stale
        except NoSuchDagError:
            return False

    def annotate(self, run: Run, note: str) -> None:
        """Write a note on a run that has none, which Airflow shows beside it. Whoever may not is left in peace."""
        path = _path(run.dag_id, "dagRuns", run.run_id)
        with contextlib.suppress(InputError, UnavailableError):
            if self._session.get(_Noted, path).note:
                return
            self._session.send("PATCH", path, params={"update_mask": "note"}, json={"note": note[:NOTE_CHARS]})

    def fail(self, run: Run) -> None:
        """Mark a run as failed, which ends its tasks and begins its teardown.

        Raises:
            InputError: the user may not change runs.
        """
        path = _path(run.dag_id, "dagRuns", run.run_id)
        response = self._session.send("PATCH", path, params={"update_mask": "state"}, json={"state": "failed"})
        self._session.checked(_Anything, response)

    def unreadable(self, dag_id: str) -> NoSuchDagError | None:
        """What keeps Airflow from reading a DAG of which there is a run, so that no further task of it is scheduled."""
        return self._unreadable(self._session.get(_Dag, _path(dag_id), missing=_no_such_dag(dag_id)))

    def _unreadable(self, dag: _Dag) -> NoSuchDagError | None:
        """What keeps Airflow from reading a DAG that it knew before; None if nothing does."""
        if not (dag.is_stale or dag.has_import_errors):
            return None
        file, dag_id = dag.relative_fileloc, dag.dag_id
        response = self._session.send("GET", "/api/v2/importErrors", params={"limit": 100})
        # not everybody may read them
        allowed = response.status_code == httpx.codes.OK
        errors = document_of(_ImportErrors, response).import_errors if allowed else []
        texts = {
            error.filename: redacted(_exception(error.stack_trace))
            for error in errors
            if error.bundle_name == dag.bundle_name
        }
        found = texts.get(file) or f"{file} no longer makes it, or was not read for a while"
        if file not in texts and (broken := texts.get(str(PurePosixPath(file).with_name(BROKEN_SPECS)))):
            found += f"; {broken}"
        return NoSuchDagError(
            f"Airflow cannot read DAG {dag_id} any more",
            found=found.removesuffix("."),
            remedy="Correct the spec, the site file or the DAG file. Airflow reads it again within half a minute, and "
            "goes on with its runs.",
        )

    def run(self, dag_id: str, run_id: str) -> Run:
        """One run.

        Raises:
            InputError: there is no such run.
        """
        missing = InputError(f"DAG {dag_id} has no run {run_id}", remedy="See `slipway status` for the newest runs.")
        return self._session.get(_Run, _path(dag_id, "dagRuns", run_id), missing=missing).read()

    def runs(self, dag_id: str, limit: int) -> list[Run]:
        """The newest runs, newest first."""
        query = {"limit": limit, "order_by": "-run_after"}
        answer = self._session.get(_Runs, _path(dag_id, "dagRuns"), query, missing=_no_such_dag(dag_id))
        return [run.read() for run in answer.dag_runs]

    def tasks(self, run: Run) -> list[Task]:
        """The run's tasks, in no particular order; those that do no work are left out."""
        path = _path(run.dag_id, "dagRuns", run.run_id, "taskInstances")
        answer = self._session.get(_Tasks, path, {"limit": 100})
        return [task.read() for task in answer.task_instances if task.operator not in WIRING]

    def result(self, run: Run, task_id: str, key: str = RESULT_KEY) -> StepResult | None:
        """What the step reported; None if it has reported nothing, or failed (see FAILED_RESULT_KEY)."""
        value = self._xcom(run, task_id, key)
        if value is None:
            return None
        try:
            return StepResult.model_validate(parse_json(value, task_id) if isinstance(value, str) else value)
        except (InputError, ValidationError):
            return None

    def _xcom(self, run: Run, task_id: str, key: str) -> Any:
        path = _path(run.dag_id, "dagRuns", run.run_id, "taskInstances", task_id, "xcomEntries", key)
        response = self._session.send("GET", path)
        absent = response.status_code == httpx.codes.NOT_FOUND
        return None if absent else self._session.checked(_XCom, response).value

    def log(self, run: Run, task: Task) -> list[LogEvent]:
        """Log events of the task's current try; none when there is no log yet."""
        path = _path(run.dag_id, "dagRuns", run.run_id, "taskInstances", task.task_id, "logs", str(task.try_number))
        response = self._session.send(
            "GET", path, params={"full_content": "true"}, headers={"Accept": "application/json"}
        )
        if response.status_code == httpx.codes.NOT_FOUND:
            return []
        content = self._session.checked(_Log, response).content
        return [LogEvent(event=event) if isinstance(event, str) else event for event in content]

    def error(self, run: Run, task: Task) -> TaskError:
        """Why the task failed, according to the result that its step wrote, or else to its log."""
        events = self.log(run, task)
        texts = [event.event.strip() for event in events if event.event]
        remedy = next((text[len(REMEDY_PREFIX) :] for text in reversed(texts) if text.startswith(REMEDY_PREFIX)), "")
        # "::group::" and the like are marks for Airflow's own page
        hidden = ("::", REMEDY_PREFIX)
        lines = [text.splitlines()[0][:LINE_CHARS] for text in texts if text and not text.startswith(hidden)]
        last_lines = tuple(lines[-LAST_LINES:])
        result = self.result(run, task.task_id, FAILED_RESULT_KEY)
        if result is not None and (failure := result.error) is not None:
            message = f"{task.task_id}: {failure.message}"
            final = not EXIT_CODES.get(failure.exit_code, True)
            return TaskError(message, last_lines, failure.remedy, final=final)
        if isinstance(
            why := self._xcom(run, task.task_id, WHY_KEY), str
        ):  # a refusal, beside which the log may have others' exceptions
            return TaskError(why, last_lines, remedy, final=True)
        for event in reversed(events):
            if event.error_detail:
                first = event.error_detail[0]
                return TaskError(first.exc_value, last_lines, remedy, final=first.exc_type == FINAL_ERROR)
        return TaskError(lines[-1] if lines else "its log is empty", last_lines, remedy)

    def health(self) -> dict[str, str]:
        """The state of each of Airflow's services by its name, such as healthy or unhealthy."""
        services = self._session.get(_Health, "/api/v2/monitor/health").model_dump()
        return {name: service["status"] or "absent" for name, service in services.items() if service}

    def dags(self, prefix: str) -> list[str]:
        """Ids of the DAGs that begin with `prefix`, at most MAX_DAGS."""
        ids: list[str] = []
        while len(ids) < MAX_DAGS:
            query = {"dag_id_pattern": prefix, "order_by": "dag_id", "limit": PAGE, "offset": len(ids)}
            page = self._session.get(_Dags, "/api/v2/dags", query)
            ids += [dag.dag_id for dag in page.dags]
            if not page.dags or len(ids) >= page.total_entries:
                break
        return sorted({dag_id for dag_id in ids if dag_id.startswith(prefix)})

    def newest_runs(self, dag_ids: Iterable[str]) -> dict[str, Run]:
        """The newest run of each DAG that has one.

        One request usually suffices. A DAG whose runs fill a page is left out of the next request.
        """
        newest: dict[str, Run] = {}
        wanted = set(dag_ids)
        while wanted:
            body = {"dag_ids": sorted(wanted), "order_by": "-run_after", "page_limit": PAGE}
            response = self._session.send("POST", _path("~", "dagRuns", "list"), json=body)
            page = self._session.checked(_Runs, response)
            for run in page.dag_runs:
                newest.setdefault(run.dag_id, run.read())
            found = wanted & newest.keys()
            if not found or len(page.dag_runs) >= page.total_entries:
                break
            wanted -= found
        return newest

    def answer(self, run: Run, task_id: str, option: str, values: Mapping[str, str]) -> None:
        """Answer a task that waits for a person with an option and values of its form.

        Raises:
            HasAnswerError: the task already has one.
            InputError: the task does not wait for an answer.
        """
        path = _path(run.dag_id, "dagRuns", run.run_id, "taskInstances", task_id, "-1", "hitlDetails")
        missing = InputError(
            f"{task_id} of run {run.run_id} does not wait for an answer", remedy="See `slipway status` for what runs."
        )
        response = self._session.send("PATCH", path, json={"chosen_options": [option], "params_input": dict(values)})
        if response.status_code == httpx.codes.CONFLICT:
            raise HasAnswerError(f"{task_id} of run {run.run_id} already has an answer, which cannot be changed")
        self._session.checked(_Anything, response, missing)


def progress_lines(events: Sequence[LogEvent]) -> Iterator[str]:
    """The lines that the step printed, newest first."""
    return (event.event.strip() for event in reversed(events) if event.event)


def _new_run_id(conf: Mapping[str, Any]) -> str:
    """Who asks for what, as in `cli-ada-v2-20260102T030405-1a2b3c4d`: unique, and only of characters of a run's id."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "someone"
    parts = [user, *(str(conf[name]) for name in ("revision", "to") if name in conf)]
    said = "-".join(NOT_OF_AN_ID.sub("-", part[:ID_CHARS]) for part in parts)
    return f"cli-{said}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def _path(dag_id: str, *parts: str) -> str:
    return "/".join(["/api/v2/dags", *(quote(part, safe="") for part in (dag_id, *parts))])


def _exception(stack_trace: str) -> str:
    """A traceback's last exception with its whole text, without the frames before it."""
    lines = stack_trace.strip().splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith(" ")]
    return "\n".join(lines[frames[-1] + 1 :] if frames else lines)


def _no_such_dag(dag_id: str) -> NoSuchDagError:
    return NoSuchDagError(
        f"Airflow has no DAG {dag_id}",
        remedy="Put a spec of that name into Airflow's specs folder, and check it with `slipway validate FILE`. "
        "Airflow reads a new spec within half a minute.",
    )
