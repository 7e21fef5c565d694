"""Names of models for a shell that completes a command line."""

import os
from pathlib import Path

import typer

from slipway.cli.settings import Settings

ANSWER_S = 5.0
RELEASES = "release__"


def model_names(context: typer.Context, incomplete: str) -> list[str]:
    """Models of Airflow whose names begin with `incomplete`; none if it does not answer: a shell shows no errors."""
    options = context.find_root().params
    site = options.get("site")
    try:
        settings = Settings.resolve(os.environ, airflow=options.get("airflow"), site=Path(site) if site else None)
        with settings.airflow(ANSWER_S) as airflow:
            return [dag.removeprefix(RELEASES) for dag in airflow.dags(f"{RELEASES}{incomplete}")]
    except Exception:  # noqa: BLE001 - a completion must never print a traceback into a line that is being typed
        return []
