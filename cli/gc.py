"""`slipway gc`: runs retention in Airflow and prints what it deleted, or would delete."""

from typing import Annotated

import typer

from cli.arguments import RunId, Timeout, settings_of
from cli.exit_codes import DONE
from cli.outcome import Outcome, outcome_of
from cli.releases import announce, end, followed, start
from cli.screens import console_on_stdout

RETENTION = "retention"


def gc(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
    timeout: Timeout = None,
    run_id: RunId = None,
) -> None:
    """Delete artifacts, releases and evidence that the site's `retention` does not keep.

    What is live, previous, deployed or planned lately is kept. Exit 65: the site has no `retention`, or it is not known
    what has to be kept.
    """
    console = console_on_stdout()
    with settings_of(context).airflow() as airflow:
        run, new = start(airflow, RETENTION, {"dry_run": dry_run}, run_id)
        announce(console, airflow, run, new=new)
        view = followed(console, airflow, run, timeout)
        outcome = outcome_of(airflow, view)
    result = view.results.get(RETENTION)
    for line in result.data.get("first", []) if result else []:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if result and (report := result.data.get("report")):
        for part in report["parts"]:
            console.print(f"every deletion: {part}", highlight=False, soft_wrap=True, markup=False)
    end(console, Outcome(DONE, result.summary) if result and view.run.state == "success" else outcome)
