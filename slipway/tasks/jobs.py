"""Runs one step in a scratch folder and writes its result document, whether it succeeds or fails."""

import json
import logging
import os
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.hub.header_token import header_token
from slipway.tasks.adapters.importing import importing
from slipway.tasks.adapters.store.object_store import ObjectStore
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.adapters.telemetry import log_lines, tracing
from slipway.tasks.adapters.telemetry.traced import TracedHub, TracedObjectStore
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.arguments import FETCH_REPOSITORY, FOLLOW_ADAPTERS, by_hand
from slipway.tasks.contracts.api_keys import OWN_KEY_VARIABLE
from slipway.tasks.contracts.base import canonical_json, read_contract, read_contract_json
from slipway.tasks.contracts.errors import InputError, PipelineError, unexpected
from slipway.tasks.contracts.fit.step_kinds import STEP_KINDS, StepRequest
from slipway.tasks.contracts.site.signing import KEY_VARIABLE
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.lease import DAG_RUN_VARIABLE, ENDED_HOLDERS_VARIABLE
from slipway.tasks.contracts.stored.plan import Plan, PlanRequest
from slipway.tasks.contracts.stored.release import MAX_REQUEST_BYTES, Failure, Release, StepResult
from slipway.tasks.contracts.wire.trace_context import trace_parent
from slipway.tasks.serving.pod.adapter_files import AdapterFiles, follow

if TYPE_CHECKING:
    from slipway.tasks.adapters.hub.hub import Hub

ROOT = Path(__file__).resolve().parents[2]

log = logging.getLogger("slipway.tasks")
R = TypeVar("R", bound=StepRequest)


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
        if parsed.step == FOLLOW_ADAPTERS:
            follow(parsed.release, workspace, parsed.adapters, environment.get("POD_NAME", ""))
        if parsed.step == FETCH_REPOSITORY:
            release = workspace.documents.release(parsed.release)
            if parsed.adapters:
                AdapterFiles(release, workspace, parsed.adapters, environment.get("POD_NAME", "")).look(starts=True)
            return _fetch_repository(release, parsed, workspace)
        if STEP_KINDS[parsed.step].plans and parsed.look:
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
    limits = {name: value for name, value in requested.items() if value is not None}
    if not limits:
        return site
    document = site.model_dump()
    document["object_store"]["transfer"] |= limits
    return read_contract(Site, document, "--concurrency or --bytes-per-s")


def _fetch_repository(release: Release, parsed: Namespace, workspace: Workspace) -> str:
    """Run a serving pod's init container, which is no step of a release."""
    from slipway.tasks.steps.fetch_repository import run

    return run(release, parsed.release, workspace, parsed.to).summary


def _look(parsed: Namespace, workspace: Workspace) -> str:
    """Plan without a trace in the store; the plan goes to a file of this machine."""
    from slipway.tasks.steps.plan import look

    preview = look(_request(parsed, PlanRequest, workspace.store), workspace)
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
        with spans.span(job.step) as attributes:
            summary = report(job, traced)
            attributes["slipway.outcome"] = "done"
        return summary
    finally:
        spans.close()


def _workspace(site: Site, scratch: Path, environment: Mapping[str, str]) -> Workspace:
    clock, store = SystemClock(), S3ObjectStore(site.object_store)

    def connect_hub() -> Any:
        # huggingface_hub reads these when it is imported
        os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
        from slipway.tasks.adapters.hub.sources import sources

        return sources(site, store, environment, clock)

    return Workspace(
        site,
        store,
        clock,
        scratch,
        ROOT,
        connect_hub,
        dag_run=environment.get(DAG_RUN_VARIABLE, ""),
        ended_holders=json.loads(environment.get(ENDED_HOLDERS_VARIABLE) or "{}"),
        signing_key=environment.get(KEY_VARIABLE, ""),
        api_key=header_token(environment.get(OWN_KEY_VARIABLE, ""), OWN_KEY_VARIABLE),
    )


def _job(parsed: Namespace, workspace: Workspace) -> Job:
    documents = STEP_KINDS[parsed.step].documents
    if documents is not None:
        request = _request(parsed, documents.request, workspace.store)
        result_uri = documents.result_uri(workspace.layout, request.model, request.run)
        return Job(parsed.step, request.run, result_uri, partial(run_step, parsed.step, request), request.model)
    release = _of_run(workspace.documents.release(parsed.release), parsed.run)
    result_uri = workspace.layout.result(release.spec.name, release.id, parsed.step)
    work = partial(_release_step, parsed.step, release)
    return Job(parsed.step, release.plan.run, result_uri, work, release.spec.name, release.id, parsed.release)


def run_step(step: Step, document: Release | StepRequest, workspace: Workspace) -> Outcome:
    """Run the module of slipway/tasks/steps that has the step's name, on the step's release or request.

    It is imported when it runs: its toolkits are in its own image only.
    """
    with importing():
        module = import_module(f"slipway.tasks.steps.{step.replace('-', '_')}")
    outcome: Outcome = module.run(document, workspace)
    return outcome


def _request(parsed: Namespace, model: type[R], store: ObjectStore) -> R:
    """The step's request: its document, or what the command line says by hand."""
    if parsed.request:
        return _read_request(model, parsed.request, store)
    fields, source = by_hand(parsed)
    return read_contract(model, fields, source)


def _read_request(model: type[R], uri: str, store: ObjectStore) -> R:
    data = store.read_bytes(uri)
    if len(data) > MAX_REQUEST_BYTES:
        raise InputError(
            f"request {uri} is too long",
            found=f"{len(data)} bytes",
            expected=f"at most {MAX_REQUEST_BYTES}",
            remedy="Make the spec shorter.",
        )
    return read_contract_json(model, data, uri)


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
        if manifest and (not STEP_KINDS[step].signs or workspace.is_servable(release.id, manifest)):
            uri = workspace.layout.artifact(step, key)
            data = {"key": key, "uri": uri, "size_bytes": manifest.size_bytes, "metrics": manifest.metrics}
            return Outcome(f"{key[:12]} is stored, nothing was run", data, stored=True)
    return run_step(step, release, workspace)


def report(job: Job, workspace: Workspace) -> str:
    """Run the job and write its result, also when it fails; return one line about what it did.

    Raises:
        Exception: what the step raised.
    """
    clock, started_at, began = workspace.clock, workspace.clock.now(), workspace.clock.monotonic()
    log.info("%s begins for run %s", job.step, job.run)
    try:
        outcome = job.work(replace(workspace, release_uri=job.release_uri or ""))
    except Exception as error:
        failed = _failed(job, error, started_at, clock.monotonic() - began)
        try:
            workspace.store.put_bytes(job.result_uri, canonical_json(failed.model_dump(mode="json")))
        except PipelineError as unwritten:  # the step's own error matters more than a store that is down as well
            log.warning("the result could not be written: %s", unwritten)
        raise
    result = StepResult(
        step=job.step,
        release=outcome.data.get("release") if STEP_KINDS[job.step].plans else job.release_uri,
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
