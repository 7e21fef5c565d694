"""`slipway gc`: runs retention in Airflow and prints what it deleted, or would delete."""

from typing import Annotated

import typer
from pydantic import ConfigDict

from slipway.cli.arguments import AsJson, RunId, Timeout, settings_of
from slipway.cli.console import console_on
from slipway.cli.exit_codes import DONE
from slipway.cli.json_documents import GcDocument
from slipway.cli.runs.outcome import Outcome, outcome_of
from slipway.cli.runs.releases import announce, end, end_in_json, ending, followed, start
from slipway.tasks.contracts.base import Contract, read_contract
from slipway.tasks.contracts.stored.release import StepResult

RETENTION = "retention"


class Deletions(Contract):
    """The URI of the list of what a retention run deleted."""

    model_config = ConfigDict(extra="ignore")

    parts: tuple[str, ...]


class Retained(Contract):
    """What a run of retention says for a person."""

    first: tuple[str, ...] | None
    report: Deletions | None

    @classmethod
    def of(cls, result: StepResult) -> "Retained":
        """What the step's result says."""
        return read_contract(Retained, {name: result.data.get(name) for name in cls.model_fields}, "its result")


def gc(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
    timeout: Timeout = None,
    run_id: RunId = None,
    as_json: AsJson = False,
) -> None:
    """Delete artifacts, releases and evidence that the site's `retention` does not keep.

    What is live, previous, deployed or planned lately is kept. Exit 65: the site has no `retention`, or it is not known
    what has to be kept.
    """
    console = console_on(stderr=as_json)
    with settings_of(context).airflow(timeout) as airflow:
        run, new = start(airflow, RETENTION, {"dry_run": dry_run}, run_id)
        announce(console, airflow, run, new=new)
        view = followed(console, airflow, run, timeout)
        outcome = outcome_of(airflow, view)
    result = view.results.get(RETENTION)
    if result and view.run.state == "success":
        outcome = Outcome(DONE, result.summary)
    retained = Retained.of(result) if result else Retained(first=None, report=None)
    deletions, parts = retained.first or (), retained.report.parts if retained.report else ()
    if as_json:
        end_in_json(GcDocument(**ending(airflow, view, outcome), deletions=list(deletions), lists=list(parts)))
    for line in (*deletions, *(f"every deletion: {part}" for part in parts)):
        console.print(line, soft_wrap=True)
    end(console, outcome)
