"""What the steps of an earlier release took and measured, from the manifests and results that they left."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from slipway.tasks.adapters.store.artifacts import DOWNLOADED_BYTES
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.forecast import PastTimes
from slipway.tasks.contracts.fit.step_kinds import STEP_KINDS, steps_of
from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.release import Release

READS_AT_ONCE = 8


def past_times(release: Release, workspace: Workspace) -> PastTimes:
    """The time of each of the release's steps that left one.

    A stage's is in the artifact's manifest: a later run finds the artifact stored and takes no time for it. A step that
    failed when it last ran has none. Neither has one whose documents are gone or cannot be read: this is an estimate.
    """
    steps = [step for step in steps_of(release.spec) if STEP_KINDS[step].timed]
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        durations = pool.map(lambda step: list(_taken(step, release, workspace)), steps)
        taken = {step: each[0] for step, each in zip(steps, durations, strict=True) if each}
    return PastTimes(
        release.id,
        release.plan.download_bytes,
        {step: seconds for step, (seconds, _) in taken.items()},
        downloaded_bytes=taken["download"][1] if "download" in taken else None,
    )


def past_gate(release: Release, workspace: Workspace) -> GateReport | None:
    """The report of the release's own gate; None where it is gone or cannot be read: it only helps to estimate."""
    try:
        return read_contract(GateReport, workspace.read_result(release, "gate").data["report"], "the gate's report")
    except (InputError, KeyError):
        return None


def _taken(step: Step, release: Release, workspace: Workspace) -> Iterator[tuple[float, int | None]]:
    """Seconds of a step, and the bytes that it downloaded where that is known."""
    try:
        if step in STAGES:
            if manifest := workspace.artifacts.find(step, release.plan.stages[step].key):
                yield manifest.seconds, manifest.metrics.get(DOWNLOADED_BYTES)
        elif (result := workspace.read_result(release, step)).outcome != "failed":
            yield result.seconds, None
    except InputError:
        return
