"""A model's releases on their way through a cluster: releases that differ, gates that judged, the channel."""

import json
from dataclasses import replace

from slipway.tasks.adapters.store.moving import Move, Place
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import Release, StepResult
from slipway.tasks.rollout.act import server_target
from slipway.tasks.rollout.act.served import Served
from slipway.tasks.steps import promote, roll_out
from tests.fakes.clock import ManualClock
from tests.fakes.releases import release
from tests.fakes.store.object_store import MemoryObjectStore


def version(number, *, run=None, name="demo", **changes) -> Release:
    """Release `number` of a model, made by run `run-<number>`."""
    made = release(run=run or f"run-{number}", name=name, **changes)
    found = f"{name}-{number:012x}"
    return made.model_copy(update={"id": found, "plan": made.plan.model_copy(update={"release_id": found})})


def reported(workspace: Workspace, made: Release, step, *, summary="", data=None, error=None):
    """A step's result of the release's run."""
    result = StepResult(
        step=step,
        run=made.plan.run,
        outcome="failed" if error else "done",
        summary=summary,
        data=data or {},
        started_at=ManualClock().now(),
        seconds=1.0,
        error=error,
    )
    uri = workspace.layout.result(made.spec.name, made.id, step)
    workspace.store.put_bytes(uri, result.model_dump_json().encode())


def judged(workspace: Workspace, made: Release, verdict="passed"):
    """The gate's result of the release's run."""
    reported(workspace, made, "gate", summary=f"{verdict}: 1 expectation", data={"verdict": verdict})


def published(workspace: Workspace, made: Release):
    """The release's own document, as plan writes it."""
    uri = workspace.layout.release(made.spec.name, made.id)
    workspace.store.put_bytes(uri, made.model_dump_json().encode())


def candidate(workspace: Workspace, number, **changes) -> Release:
    """A release that was rolled out and judged."""
    made = version(number, **changes)
    published(workspace, made)
    roll_out.run(made, workspace)
    judged(workspace, made)
    return made


def released(workspace: Workspace, number, **changes) -> Release:
    """A release that was rolled out, judged and promoted."""
    made = candidate(workspace, number, **changes)
    promote.run(made, workspace)
    return made


def check_by_plan(spec: ReleaseSpec, workspace: Workspace):
    """Plan's check of the release beside those that are live."""
    server_target.check_beside_live(ResolvedRelease(spec, workspace.site), Served.read(spec, workspace.documents))


def channel(workspace: Workspace, name="demo") -> Channel | None:
    """The model's channel as it is stored."""
    found = workspace.store.read_with_etag(workspace.layout.channel(name))
    return Channel.model_validate(json.loads(found[0])) if found else None


def moved(workspace: Workspace, bucket="elsewhere") -> Workspace:
    """The same cluster with a site that names another bucket, to which channels and releases were imported."""
    store = workspace.site.object_store.model_copy(update={"bucket": bucket})
    site = workspace.site.model_copy(update={"object_store": store})
    there = replace(workspace, site=site, store=MemoryObjectStore())
    source = Place(workspace.store, workspace.layout)
    list(Move(source, Place(there.store, there.layout), workspace.clock, stages=()).run(source.names()))
    return there
