"""The report of a run, which its gate writes beside the evidence: the same as the run's page, as one file."""

from collections.abc import Sequence

from slipway.tasks.contracts.fit.ledger import Ledger
from slipway.tasks.contracts.measured.evidence import Evidence
from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.measured.measurement import LevelSummary
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.pages.templates import render
from slipway.tasks.pages.timeline import Point
from slipway.tasks.pages.trial import Trial


def report_page(
    release: Release,
    report: GateReport,
    evidence: Evidence,
    summaries: Sequence[LevelSummary],
    *,
    past: Sequence[Point] = (),
    quality: Sequence[str] = (),
    costs: Ledger | None = None,
    hub: str = "",
) -> str:
    """The page. `past` are earlier candidates, the oldest first; `hub` is the address that commits are linked to."""
    trial = Trial(
        release.id,
        release.plan.run,
        release,
        report,
        tuple(evidence.answers),
        tuple(summaries),
        evidence.harness,
        tuple(quality),
        tuple(past),
        costs,
    )
    return render("report.html.j2", trial=trial, hub=hub)
