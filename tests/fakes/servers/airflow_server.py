"""An Airflow that speaks the REST API of 3.3.2 over real HTTP and runs nothing: its runs are scripts of frames.

A frame is what one look at a run sees; each listing of a run's tasks moves the run on to its next frame, and the last
one stays. Everything asked of the server is in `asked`.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from slipway.tasks.contracts.stored.release import FAILED_RESULT_KEY, WHY_KEY

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
USER, PASSWORD = "ci", "right"
WAITING = frozenset({"awaiting_input", "deferred"})
"""States of a task that waits for a person, from Airflow 3.3 on and before it."""


@dataclass(frozen=True)
class Frame:
    """A run at one moment: its state, and the state of each task."""

    state: str
    tasks: dict[str, str | None] = field(default_factory=dict)


@dataclass
class Script:
    """What the runs of a DAG do."""

    frames: list[Frame]
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    paused: bool = False
    unreadable: str = ""
    """The import error of its file."""
    failed_results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What failed steps reported."""
    refusals: dict[str, str] = field(default_factory=dict)
    """Why tasks were refused."""
    description: str | None = None
    spec_is_gone: bool = False
    """Its file no longer makes the DAG, and has no import error."""


@dataclass
class ScriptedRun:
    """A run that was triggered."""

    run_id: str
    conf: dict[str, Any]
    script: Script
    frame: int = 0
    answers: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str | None] = field(default_factory=dict)
    goes_on: dict[str, str] = field(default_factory=lambda: {"Approve": "success", "Reject": "failed"})
    """The state of a task after a person's answer."""
    forgets: int = 0
    """How many answers are forgotten: the task is tried again, and asks again."""
    forgotten: int = 0
    tried_again: bool = False
    outage: list[int] = field(default_factory=list)
    """Statuses of the requests after an answer."""
    asked_at: datetime | None = None
    """When its tasks began, if not long ago."""
    note: str | None = None

    @property
    def now(self) -> Frame:
        return self.script.frames[min(self.frame, len(self.script.frames) - 1)]

    def state(self, task_id: str) -> str | None:
        """The state of a task, which may have an answer."""
        answer, state = self.answers.get(task_id), self.now.tasks[task_id]
        if self.tried_again and state in WAITING:
            return "up_for_retry"
        return self.goes_on[answer] if answer and state in WAITING else state


@dataclass
class AirflowServer:
    """The server and what it holds. Use as a context manager."""

    dags: dict[str, Script] = field(default_factory=dict)
    runs: dict[tuple[str, str], ScriptedRun] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    """Statuses that the next requests get instead of an answer."""
    lost_answers: int = 0
    """Runs that are started while whoever asked gets a gateway's time-out instead of an answer."""
    page_limit: int = 100
    """The most entries of a list."""
    answer_s: float = 0.0
    """How long every answer takes."""
    hides_import_errors: bool = False
    """The user may not read import errors."""

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"airflow": self}))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def count(self, asked: str) -> int:
        """How often a request line that begins so was asked."""
        return sum(line.startswith(asked) for line in self.asked)


def run_document(dag_id: str, run: ScriptedRun) -> dict[str, Any]:
    """DAGRunResponse."""
    ended = run.now.state in {"success", "failed"}
    stamp = BEGAN.isoformat().replace("+00:00", "Z")
    return {
        "dag_run_id": run.run_id,
        "dag_id": dag_id,
        "logical_date": None,
        "queued_at": stamp,
        "start_date": None if run.now.state == "queued" else stamp,
        "end_date": _stamp(60) if ended else None,
        "duration": 60.0 if ended else None,
        "data_interval_start": None,
        "data_interval_end": None,
        "run_after": stamp,
        "last_scheduling_decision": None,
        "run_type": "manual",
        "state": run.now.state,
        "triggered_by": "rest_api",
        "triggering_user_name": USER,
        "conf": run.conf,
        "note": run.note,
        "dag_versions": [],
        "bundle_version": None,
        "dag_display_name": dag_id,
        "partition_key": None,
        "partition_date": None,
    }


def task_document(dag_id: str, run: ScriptedRun, task_id: str) -> dict[str, Any]:
    """TaskInstanceResponse."""
    state = run.state(task_id)
    began = state not in {None, "scheduled", "queued", "upstream_failed"}
    ended = state in {"success", "failed", "skipped"}
    return {
        "id": str(uuid4()),
        "task_id": task_id,
        "dag_id": dag_id,
        "dag_run_id": run.run_id,
        "map_index": -1,
        "logical_date": None,
        "run_after": _stamp(0),
        "start_date": (run.asked_at.isoformat() if run.asked_at else _stamp(0)) if began else None,
        "end_date": _stamp(4.2) if ended else None,
        "duration": 4.2 if ended else None,
        "state": state,
        "try_number": 1 + run.forgotten if began else 0,
        "max_tries": 2,
        "task_display_name": task_id,
        "dag_display_name": dag_id,
        "hostname": "host",
        "unixname": "airflow",
        "pool": "default_pool",
        "pool_slots": 1,
        "queue": "default",
        "priority_weight": 1,
        "operator": "Released" if task_id == "released" else "StepOperator",
        "operator_name": None,
        "queued_when": None,
        "scheduled_when": None,
        "pid": None,
        "executor": None,
        "executor_config": "{}",
        "note": None,
        "rendered_map_index": None,
        "rendered_fields": {},
        "trigger": None,
        "triggerer_job": None,
        "dag_version": None,
    }


def _stamp(after_s: float) -> str:
    return (BEGAN + timedelta(seconds=after_s)).isoformat().replace("+00:00", "Z")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    airflow: AirflowServer

    def do_GET(self):
        self._serve()

    def do_POST(self):
        self._serve()

    def do_PATCH(self):
        self._serve()

    def _serve(self):
        parts = urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        self.airflow.asked.append(f"{self.command} {parts.path}")
        time.sleep(self.airflow.answer_s)
        if self.airflow.failures:
            return self._answer(self.airflow.failures.pop(0), {"detail": "broken on purpose"})
        if parts.path == "/auth/token":
            return self._log_in(body)
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.airflow.tokens:
            return self._answer(401, {"detail": "Invalid JWT token"})
        if fixed := {"/api/v2/importErrors": self._import_errors, "/api/v2/monitor/health": self._health}.get(
            parts.path
        ):
            return fixed()
        segments = [unquote(segment) for segment in parts.path.removeprefix("/api/v2/dags").strip("/").split("/")]
        if segments[0] in {"", "~"}:
            return self._of_all(parse_qs(parts.query), body)
        return self._of_dag(segments[0], segments[1:], body)

    def _of_all(self, query, body):
        if body:
            runs = [(name, run) for (name, _), run in self.airflow.runs.items() if name in body["dag_ids"]]
            return self._page("dag_runs", [run_document(*each) for each in runs[::-1]], body["page_limit"])
        dags = [{"dag_id": name} for name in sorted(self.airflow.dags) if query["dag_id_pattern"][0] in name]
        return self._page("dags", dags, int(query["limit"][0]), int(query["offset"][0]))

    def _import_errors(self):
        if self.airflow.hides_import_errors:
            return self._answer(403, {"detail": "Forbidden"})
        errors = [
            {
                "filename": f"{dag_id}.py",
                "bundle_name": bundle,
                "stack_trace": f'Traceback:\n  File "{dag_id}.py", line 1\n    raise\n{text}\n',
            }
            for dag_id, script in self.airflow.dags.items()
            for bundle, text in (("slipway", script.unreadable), ("another", "another team's error"))
            if script.unreadable
        ]
        return self._answer(200, {"import_errors": errors, "total_entries": len(errors)})

    def _health(self):
        services = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return self._answer(200, {name: {"status": "healthy"} for name in services})

    def _log_in(self, body):
        if (body["username"], body["password"]) != (USER, PASSWORD):
            return self._answer(401, {"detail": "Invalid credentials"})
        self.airflow.tokens.append(f"token-{len(self.airflow.tokens)}")
        return self._answer(201, {"access_token": self.airflow.tokens[-1]})

    def _of_dag(self, dag_id, rest, body):
        script = self.airflow.dags.get(dag_id)
        if script is None:
            return self._answer(404, {"detail": f"Dag with dag_id: '{dag_id}' not found"})
        if not rest:
            broken = bool(script.unreadable)
            stale = broken or script.spec_is_gone
            states = {
                "description": script.description,
                "is_paused": script.paused,
                "is_stale": stale,
                "has_import_errors": broken,
            }
            return self._answer(
                200, {"dag_id": dag_id, "relative_fileloc": f"{dag_id}.py", "bundle_name": "slipway", **states}
            )
        if len(rest) == 1:
            return self._trigger(dag_id, script, body) if self.command == "POST" else self._list(dag_id)
        run = self.airflow.runs.get((dag_id, rest[1]))
        if run is None:
            return self._answer(404, {"detail": f"The DagRun with run_id: `{rest[1]}` was not found"})
        return self._of_run(dag_id, run, rest[2:], body)

    def _trigger(self, dag_id, script, body):
        if "logical_date" not in body:
            missing = {"loc": ["body", "logical_date"], "msg": "Field required", "type": "missing"}
            return self._answer(422, {"detail": [missing]})
        run_id = body.get("dag_run_id") or f"manual__{len(self.airflow.runs)}"
        lost = self.airflow.lost_answers > 0
        self.airflow.lost_answers -= lost
        if lost:
            self.airflow.runs.setdefault((dag_id, run_id), ScriptedRun(run_id, body["conf"], script))
            return self._answer(504, {"detail": "Gateway Timeout"})
        if (dag_id, run_id) in self.airflow.runs:
            return self._answer(409, {"detail": {"reason": "Unique constraint violation", "statement": "hidden"}})
        run = self.airflow.runs[dag_id, run_id] = ScriptedRun(run_id, body["conf"], script)
        return self._answer(200, run_document(dag_id, run))

    def _list(self, dag_id):
        runs = [run_document(name, run) for (name, _), run in self.airflow.runs.items() if name == dag_id]
        return self._answer(200, {"dag_runs": runs[::-1], "total_entries": len(runs)})

    def _of_run(self, dag_id, run, rest, body):
        if not rest:
            run.note = body.get("note", run.note)
            if "state" in body:
                run.script = Script([Frame(body["state"])])
            return self._answer(200, run_document(dag_id, run))
        if len(rest) == 1:
            documents = [task_document(dag_id, run, task) for task in run.now.tasks]
            run.frame += 1
            run.tried_again = False
            return self._answer(200, {"task_instances": documents, "total_entries": len(documents)})
        task, kind = rest[1], rest[2]
        if rest[-1] == "hitlDetails":
            return self._answer_person(run, task, body)
        if kind == "logs":
            return self._answer(200, {"content": run.script.logs.get(task, []), "continuation_token": None})
        key = rest[-1]
        rejected = {name: f"{name}: rejected by {USER}" for name, answer in run.answers.items() if answer == "Reject"}
        values = {FAILED_RESULT_KEY: run.script.failed_results, WHY_KEY: rejected | run.script.refusals}.get(
            key, run.script.results
        )
        if task not in values:
            return self._answer(404, {"detail": f"XCom entry with key: `{key}` not found"})
        return self._answer(200, {"key": key, "task_id": task, "value": values[task]})

    def _answer_person(self, run, task, body):
        if task in run.answers:
            return self._answer(409, {"detail": "Human-in-the-loop detail has already been updated"})
        if run.now.tasks.get(task) not in WAITING:
            return self._answer(404, {"detail": "Human-in-the-loop detail does not exist"})
        if run.forgotten < run.forgets:
            run.forgotten, run.tried_again = run.forgotten + 1, True
        else:
            run.answers[task] = body["chosen_options"][0]
            run.reasons[task] = body["params_input"].get("reason")
        self.airflow.failures += run.outage
        return self._answer(200, {"responded_by": {"id": USER, "name": USER}, "chosen_options": body["chosen_options"]})

    def _page(self, name, documents, limit, offset=0):
        page = documents[offset : offset + min(limit, self.airflow.page_limit)]
        return self._answer(200, {name: page, "total_entries": len(documents)})

    def _answer(self, code, value):
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass
