"""A plan that Airflow makes: a run of the model's DAG that ends after its first step."""

from collections.abc import Callable

import typer

from slipway.cli.airflow.patience import patiently
from slipway.cli.console import console_on
from slipway.cli.exit_codes import REFUSED
from slipway.cli.runs.follow import RunView
from slipway.cli.runs.outcome import outcome_of, preview_of
from slipway.cli.runs.releases import dag_of, end, followed, parameters, start
from slipway.cli.settings import Settings
from slipway.tasks.contracts.fit.forecast import Preview


def plan_in_airflow(
    name: str,
    settings: Settings,
    revision: str | None,
    failed: Callable[[str, int], None],
    *,
    force: bool,
    timeout: float | None,
    run_id: str | None,
) -> Preview:
    """Start a run that only plans, or follow the one with this id. Its progress goes to stderr.

    `failed` is called with the reason and the exit code if there is no plan, or none yet.

    Raises:
        typer.Exit: there is no plan; the reason was printed.
    """
    progress = console_on(stderr=True)
    with settings.airflow(timeout) as airflow:
        run, _ = start(airflow, dag_of(name), parameters(revision, force=force, plan_only=True), run_id)

        def planned(view: RunView) -> bool:
            return view.run.ended or preview_of(view) is not None

        try:
            view = followed(progress, airflow, run, timeout, until=planned)
        except typer.Exit as ended:
            failed(f"no plan yet; the run continues, follow it with --run-id {run.run_id}", ended.exit_code)
            raise
        preview = preview_of(view)
        if preview is None:
            outcome = patiently(lambda: outcome_of(airflow, view))
            failed(outcome.text, outcome.exit_code)
            end(progress, outcome)
            raise typer.Exit(REFUSED)
    return preview
