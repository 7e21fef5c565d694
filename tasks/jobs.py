"""Runs one step in a scratch folder and writes its result document, whether it succeeds or fails."""

import json
import logging
import os
import shutil
import sys
import tempfile
import traceback
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tasks import step_table
from tasks.adapters.clock import SystemClock
from tasks.adapters.store.s3 import S3ObjectStore
from tasks.adapters.telemetry import log_lines, tracing
from tasks.adapters.telemetry.traced import TracedHub, TracedObjectStore
from tasks.adapters.workspace import Outcome, Workspace
from tasks.arguments import DRILL, FETCH_REPOSITORY, PLAN, RETENTION, REVERT
from tasks.contracts.base import Contract, canonical_json, read_contract, read_contract_json
from tasks.contracts.errors import InputError, PipelineError
from tasks.contracts.measured.drill import DrillRequest
from tasks.contracts.site.retention import RetentionRequest
from tasks.contracts.site.signing import KEY_VARIABLE
from tasks.contracts.site.site import Site
from tasks.contracts.spec.spec import ReleaseSpec
from tasks.contracts.steps import Step
from tasks.contracts.stored.artifact import STAGES
from tasks.contracts.stored.lease import DAG_RUN_VARIABLE, ENDED_HOLDERS_VARIABLE
from tasks.contracts.stored.plan import Plan, PlanRequest
from tasks.contracts.stored.release import MAX_REQUEST_BYTES, Failure, Release, RevertRequest, StepResult
from tasks.contracts.wire.json_text import parse_json
from tasks.contracts.wire.trace_context import trace_parent
from tasks.document_files import read_document

if TYPE_CHECKING:
    from tasks.adapters.hub.hub import Hub

ROOT = Path(__file__).resolve().parent.parent
ERROR_CHARS = 200

log = logging.getLogger("tasks")
R = TypeVar("R", bound=Contract)


@dataclass(frozen=True)
class Job:
    """One step, ready to run, and where its result goes."""

    step: Step
    run: str
    result_uri: str
    work: Callable[[Workspace], Outcome]
    model: str = ""
    release_id: str = ""
    release_uri: str | None = None


def run(parsed: Namespace, site: Site, environment: Mapping[str, str]) -> str:
    """Run the requested step in a scratch folder that is removed afterwards; return one line about what it did."""
    base = environment.get("SLIPWAY_SCRATCH") or tempfile.gettempdir()
    scratch = Path(tempfile.mkdtemp(prefix=f"slipway-{parsed.step}-", dir=base))
    try:
        workspace = _workspace(_at_the_requested_rate(site, parsed), scratch, environment)
        if parsed.step == FETCH_REPOSITORY:
            release = _read_release(parsed.release, workspace)
            return step_table.fetch_repository(release, parsed.release, workspace, parsed.to).summary
        if parsed.step == PLAN and parsed.look:
            return _look(parsed, workspace)
        return _traced(_job(parsed, workspace), workspace, environment)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _at_the_requested_rate(site: Site, parsed: Namespace) -> Site:
    """The site with what the command line says of transfers."""
    requested = {
        "connections": getattr(parsed, "concurrency", None),
        "bytes_per_s": getattr(parsed, "bytes_per_s", None),
    }
    given = {name: value for name, value in requested.items() if value is not None}
    if not given:
        return site
    document = site.model_dump()
    document["object_store"]["transfer"] |= given
    return read_contract(Site, document, "--concurrency or --bytes-per-s")


def _look(parsed: Namespace, workspace: Workspace) -> str:
    """Plan without a trace in the store; the plan goes to a file of this machine."""
    preview = step_table.look(_plan_request(parsed, workspace), workspace)
    parsed.look.write_text(preview.model_dump_json(indent=2), encoding="utf-8")
    return f"looked at {preview.plan.release_id}: {preview.plan.action}"


def _traced(job: Job, workspace: Workspace, environment: Mapping[str, str]) -> str:
    """Run the job, with a span for it and for each of its transfers where the site has a collector."""
    names = {"step": job.step, "run": job.run, "model": job.model, "release": job.release_id}
    telemetry = workspace.site.telemetry
    if telemetry.logs == "json":
        log_lines.configure("json", sys.stdout, names)
    resource = {f"slipway.{name}": value for name, value in names.items() if value}
    spans = tracing.start(telemetry.traces, environment, parent=trace_parent(job.model, job.run), resource=resource)
    connect = workspace.connect_hub
    traced = replace(
        workspace,
        store=TracedObjectStore(workspace.store, spans),
        connect_hub=lambda: cast("Hub", TracedHub(connect(), spans)),
    )
    try:
        with spans.span(job.step) as found:
            summary = report(job, traced)
            found["slipway.outcome"] = "done"
        return summary
    finally:
        spans.close()


def unexpected(error: Exception) -> str:
    """Describe an error that is not one of ours, with the line that raised it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return f"unexpected {type(error).__name__} in {where}: {str(error)[:ERROR_CHARS]}"


def _workspace(site: Site, scratch: Path, environment: Mapping[str, str]) -> Workspace:
    clock = SystemClock()

    def connect_hub() -> Any:
        # huggingface_hub reads these when it is imported
        os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
        from tasks.adapters.hub.hub import HuggingFaceHub

        return HuggingFaceHub(site.hub.endpoint, environment.get("HF_TOKEN") or None, clock)

    return Workspace(
        site,
        S3ObjectStore(site.object_store),
        clock,
        scratch,
        ROOT,
        connect_hub,
        dag_run=environment.get(DAG_RUN_VARIABLE, ""),
        ended_holders=json.loads(environment.get(ENDED_HOLDERS_VARIABLE) or "{}"),
        signing_key=environment.get(KEY_VARIABLE, ""),
    )


def _job(parsed: Namespace, workspace: Workspace) -> Job:
    if parsed.step == PLAN:
        request = _plan_request(parsed, workspace)
        result_uri = workspace.layout.plan(request.spec.name, request.run)
        return Job(PLAN, request.run, result_uri, partial(step_table.plan, request), request.spec.name)
    if parsed.step == REVERT:
        revert = _revert_request(parsed, workspace)
        result_uri = workspace.layout.revert(revert.name, revert.run)
        return Job(REVERT, revert.run, result_uri, partial(step_table.revert, revert), revert.name)
    if parsed.step == DRILL:
        drill = _drill_request(parsed, workspace)
        result_uri = workspace.layout.drill(drill.name, drill.run)
        return Job(DRILL, drill.run, result_uri, partial(step_table.drill, drill), drill.name)
    if parsed.step == RETENTION:
        retention = _retention_request(parsed, workspace)
        result_uri = workspace.layout.retention_result(retention.run)
        return Job(RETENTION, retention.run, result_uri, partial(step_table.retention, retention))
    release = _of_run(_read_release(parsed.release, workspace), parsed.run)
    result_uri = workspace.layout.result(release.spec.name, release.id, parsed.step)
    work = partial(_release_step, parsed.step, release)
    return Job(parsed.step, release.plan.run, result_uri, work, release.spec.name, release.id, parsed.release)


def _plan_request(parsed: Namespace, workspace: Workspace) -> PlanRequest:
    if parsed.request:
        return _read_request(PlanRequest, parsed.request, workspace)
    data, source = _read_spec(parsed.spec)
    spec = read_contract(ReleaseSpec, data, source)
    request = {"spec": spec, "run": parsed.run, "revision": parsed.revision, "force": parsed.force}
    return read_contract(PlanRequest, request, source)


def _read_spec(argument: str) -> tuple[Any, str]:
    """Return the spec as data, and the name that messages give it."""
    if argument.lstrip().startswith("{"):
        return parse_json(argument, "--spec"), "--spec"
    return read_document(Path(argument)), argument


def _revert_request(parsed: Namespace, workspace: Workspace) -> RevertRequest:
    if parsed.request:
        return _read_request(RevertRequest, parsed.request, workspace)
    request = {"name": parsed.name, "run": parsed.run, "reason": parsed.reason, "to": parsed.to}
    return read_contract(RevertRequest, request, "revert")


def _drill_request(parsed: Namespace, workspace: Workspace) -> DrillRequest:
    if parsed.request:
        return _read_request(DrillRequest, parsed.request, workspace)
    settings = {"request_rate": parsed.request_rate, "seconds": parsed.seconds}
    given = {name: value for name, value in settings.items() if value is not None}
    return read_contract(DrillRequest, {"name": parsed.name, "run": parsed.run, "settings": given}, "drill")


def _retention_request(parsed: Namespace, workspace: Workspace) -> RetentionRequest:
    if parsed.request:
        return _read_request(RetentionRequest, parsed.request, workspace)
    return read_contract(RetentionRequest, {"run": parsed.run, "dry_run": bool(parsed.dry_run)}, "retention")


def _read_request(model: type[R], uri: str, workspace: Workspace) -> R:
    data = workspace.store.read_bytes(uri)
    if len(data) > MAX_REQUEST_BYTES:
        raise InputError(
            f"request {uri} is too long",
            found=f"{len(data)} bytes",
            expected=f"at most {MAX_REQUEST_BYTES}",
            remedy="Make the spec shorter.",
        )
    return read_contract_json(model, data, uri)


def _read_release(uri: str, workspace: Workspace) -> Release:
    return read_contract_json(Release, workspace.store.read_bytes(uri), uri)


def _of_run(release: Release, run: str | None) -> Release:
    """Return the release as one run sees it: a later run may have planned the same artifacts again."""
    if run is None:
        return release
    plan = release.plan.model_dump() | {"run": run}
    return release.model_copy(update={"plan": read_contract(Plan, plan, "--run")})


def _release_step(step: Step, release: Release, workspace: Workspace) -> Outcome:
    """Run a step of a release, unless it is a stage whose artifact is stored."""
    if step in STAGES:
        key = release.plan.stages[step].key
        manifest = workspace.artifacts.use(step, key)
        if manifest and (step != "publish" or workspace.is_servable(release.id, manifest)):
            uri = workspace.layout.artifact(step, key)
            data = {"key": key, "uri": uri, "size_bytes": manifest.size_bytes, "metrics": manifest.metrics}
            return Outcome(f"{key[:12]} is stored, nothing was run", data, stored=True)
    return step_table.RELEASE_STEPS[step](release, workspace)


def report(job: Job, workspace: Workspace) -> str:
    """Run the job and write its result, also when it fails; return one line about what it did.

    Raises:
        Exception: what the step raised.
    """
    clock, started_at, began = workspace.clock, workspace.clock.now(), workspace.clock.monotonic()
    log.info("%s begins for run %s", job.step, job.run)
    try:
        outcome = job.work(workspace)
    except Exception as error:
        failed = _failed(job, error, started_at, clock.monotonic() - began)
        try:
            workspace.store.put_bytes(job.result_uri, canonical_json(failed.model_dump(mode="json")))
        except PipelineError as unwritten:  # the step's own error matters more than a store that is down as well
            log.warning("the result could not be written: %s", unwritten)
        raise
    result = StepResult(
        step=job.step,
        release=outcome.data.get("release") if job.step == PLAN else job.release_uri,
        run=job.run,
        outcome="stored" if outcome.stored else "done",
        summary=outcome.summary,
        data=outcome.data,
        started_at=started_at,
        seconds=clock.monotonic() - began,
    )
    workspace.store.put_bytes(job.result_uri, canonical_json(result.model_dump(mode="json")))
    return f"{job.step}: {outcome.summary}"


def _failed(job: Job, error: Exception, started_at: datetime, seconds: float) -> StepResult:
    if isinstance(error, PipelineError):
        failure = Failure.of(error)
    else:
        code = PipelineError.exit_code
        failure = Failure(kind=type(error).__name__, exit_code=code, message=unexpected(error))
    return StepResult(
        step=job.step,
        release=job.release_uri,
        run=job.run,
        outcome="failed",
        summary=failure.message,
        started_at=started_at,
        seconds=seconds,
        error=failure,
    )
