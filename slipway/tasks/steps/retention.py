"""retention: delete what the site's policy does not keep, and report each deletion."""

from slipway.tasks.adapters.progress import size
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.retention import RetentionReport, RetentionRequest
from slipway.tasks.retention.ledger import Ledger, line_of
from slipway.tasks.retention.sweep import Sweep

VERSIONED = "the bucket keeps deleted versions, so a lifecycle rule has to free their space (docs/day-two.md)"


def run(request: RetentionRequest, workspace: Workspace) -> Outcome:
    """Delete artifacts, releases, evidence, documents of runs and incomplete uploads beyond the site's policy.

    Raises:
        InputError: the site has no policy; a channel or a kept release cannot be read, and nothing was deleted; or the
            store refused some of the deletions.
        UnavailableError: the object store or the cluster does not answer.
    """
    policy = workspace.site.retention
    if policy is None:
        raise InputError(
            f"site {workspace.site.name} has no retention, so everything is kept",
            remedy="Add `retention: {}` to the site file for the defaults, and run `slipway setup`.",
        )
    ledger = Ledger(workspace.store, workspace.layout.retention(request.run), request.dry_run)
    report = Sweep(workspace, policy, request, ledger, workspace.clock.now()).run()
    if ledger.refused:
        raise InputError(
            "the object store did not delete everything",
            found=ledger.refused.problem,
            expected=f"the deletions listed in {ledger.prefix}",
            remedy="Allow slipway-retention to delete (s3:DeleteObject); the next run continues.",
        )
    return Outcome(summary(report), {"report": report.model_dump(mode="json"), "first": [*map(line_of, ledger.first)]})


def summary(report: RetentionReport) -> str:
    """What a run did, in one line."""
    outcome = "would-delete" if report.dry_run else "deleted"
    totals = [total for total in report.totals if total.outcome == outcome]
    amounts = ", ".join(f"{total.count} {total.kind}{'s' if total.count > 1 else ''}" for total in totals) or "nothing"
    freed = size(sum(total.size_bytes for total in totals))
    kept = f"{report.kept_releases} releases keep their artifacts"
    versioned = f"; {VERSIONED}" if report.versioned and totals and not report.dry_run else ""
    return f"{'would delete' if report.dry_run else 'deleted'} {amounts}, {freed}; {kept}{versioned}"
