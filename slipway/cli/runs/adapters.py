"""`slipway adapters`: have the live release of a model serve the LoRA adapters that its spec names, or those before."""

from typing import Annotated

import typer

from slipway.cli.airflow.patience import patiently
from slipway.cli.arguments import Name, RunId, Timeout, settings_of
from slipway.cli.console import console_on
from slipway.cli.exit_codes import DONE
from slipway.cli.runs.fleets import refuse_fleet
from slipway.cli.runs.outcome import Outcome, outcome_of
from slipway.cli.runs.releases import announce, end, followed, start
from slipway.tasks.contracts.stored.lease import ADAPTERS
from slipway.tasks.contracts.stored.release import PREVIOUS


def adapters(
    context: typer.Context,
    name: Name,
    previous: Annotated[
        bool, typer.Option("--previous", help="Go back to the adapters that were served before.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why; kept with the adapters.")] = None,
    timeout: Timeout = None,
    run_id: RunId = None,
) -> None:
    """Have the live release serve the adapters that the model's spec names. No pod is replaced.

    They are downloaded, checked, gated at one pod, loaded by every pod, and only then listed. Exit codes are those of
    `slipway release`.
    """
    console = console_on()
    with settings_of(context).airflow(timeout) as airflow:
        refuse_fleet(airflow, name)
        conf = {**({"to": PREVIOUS} if previous else {}), **({"reason": reason} if reason else {})}
        run, new = start(airflow, f"{ADAPTERS}{name}", conf, run_id)
        announce(console, airflow, run, new=new)
        view = followed(console, airflow, run, timeout)
        loaded = view.results.get("load-adapters")
        if view.run.state == "success" and loaded:
            outcome = Outcome(DONE, loaded.summary)
        else:
            outcome = patiently(lambda: outcome_of(airflow, view))
        airflow.annotate(run, outcome.text)
    end(console, outcome)
