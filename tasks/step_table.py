"""The steps of a release by name. Each is imported when it runs: its toolkits are in its own image only."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.fit.forecast import Preview
from tasks.contracts.measured.drill import DrillRequest
from tasks.contracts.site.retention import RetentionRequest
from tasks.contracts.steps import Step
from tasks.contracts.stored.plan import PlanRequest
from tasks.contracts.stored.release import Release, RevertRequest

ReleaseStep = Callable[[Release, Workspace], Outcome]


def plan(request: PlanRequest, workspace: Workspace) -> Outcome:
    """Run the step that comes before there is a release."""
    from tasks.steps.plan import run

    return run(request, workspace)


def look(request: PlanRequest, workspace: Workspace) -> Preview:
    """Plan without writing anything."""
    from tasks.steps.plan import look

    return look(request, workspace)


def revert(request: RevertRequest, workspace: Workspace) -> Outcome:
    """Run the step that puts a previous release back."""
    from tasks.steps.revert import run

    return run(request, workspace)


def drill(request: DrillRequest, workspace: Workspace) -> Outcome:
    """Run the step that tries out the way back to the previous release."""
    from tasks.steps.drill import run

    return run(request, workspace)


def retention(request: RetentionRequest, workspace: Workspace) -> Outcome:
    """Run the step that deletes what the site's policy does not keep."""
    from tasks.steps.retention import run

    return run(request, workspace)


def fetch_repository(release: Release, release_uri: str, workspace: Workspace, folder: Path) -> Outcome:
    """Run a serving pod's init container, which is no step of a release."""
    from tasks.steps.fetch_repository import run

    return run(release, release_uri, workspace, folder)


def _download(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.download import run

    return run(release, workspace)


def _quantize(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.quantize import run

    return run(release, workspace)


def _build(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.build import run

    return run(release, workspace)


def _assemble(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.assemble import run

    return run(release, workspace)


def _publish(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.publish import run

    return run(release, workspace)


def _check_network(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.check_network import run

    return run(release, workspace)


def _roll_out(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.roll_out import run

    return run(release, workspace)


def _smoke_test(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.smoke import run

    return run(release, workspace)


def _benchmark(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.benchmark import run

    return run(release, workspace)


def _evaluate(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.evaluate import run

    return run(release, workspace)


def _gate(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.gate import run

    return run(release, workspace)


def _promote(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.promote import run

    return run(release, workspace)


def _roll_back(release: Release, workspace: Workspace) -> Outcome:
    from tasks.steps.roll_back import run

    return run(release, workspace)


RELEASE_STEPS: Mapping[Step, ReleaseStep] = {
    "download": _download,
    "quantize": _quantize,
    "build": _build,
    "assemble": _assemble,
    "publish": _publish,
    "check-network": _check_network,
    "roll-out": _roll_out,
    "smoke-test": _smoke_test,
    "benchmark": _benchmark,
    "evaluate": _evaluate,
    "gate": _gate,
    "promote": _promote,
    "roll-back": _roll_back,
}
"""Every step that works on a planned release."""
