"""`slipway plan`: what a release would do. Airflow plans a model by its name; this machine plans the file of a spec."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.arguments import settings_of
from cli.exit_codes import REFUSED
from cli.follow import RunView
from cli.outcome import outcome_of, preview_of
from cli.releases import Force, Revision, RunId, Timeout, dag_of, end, followed, parameters, start
from cli.screens import console_on_stdout
from cli.settings import Settings
from cli.step_process import run_step
from cli.tables import plan_footing, plan_heading, plan_table
from tasks.contracts.base import read_contract, read_contract_json
from tasks.contracts.errors import InputError
from tasks.contracts.forecast import Preview
from tasks.contracts.spec import ReleaseSpec
from tasks.document_files import read_document

BY_HAND = "by-hand"


def plan(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="NAME|FILE", help="Name of a model, or the file of a spec.")],
    revision: Revision = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    timeout: Timeout = 300.0,
    run_id: RunId = None,
) -> None:
    """Show what a release would do, without doing it.

    NAME: Airflow plans the spec that it has. FILE: this machine plans the spec in it, in seconds, with its own access
    to the Hub and the object store (HF_TOKEN, AWS credentials). Neither downloads a weight.

    Exit 65: the release is refused.
    """
    settings = settings_of(context)
    if "." in what or "/" in what:  # a name has neither
        if run_id is not None:
            raise InputError(
                "--run-id names a run of Airflow, and a file is planned on this machine",
                found=what,
                remedy="Leave it out, or give the model's name.",
            )
        preview = _here(Path(what), settings, revision, force=force)
    else:
        conf = parameters(revision, force=force, plan_only=True)
        preview = _in_airflow(what, settings, conf, timeout, run_id)
    if as_json:
        typer.echo(preview.model_dump_json(indent=2))
        return
    console = console_on_stdout()
    console.print(plan_heading(preview.plan), highlight=False, soft_wrap=True)
    console.print(plan_table(preview), highlight=False)
    for line in plan_footing(preview):
        console.print(line, highlight=False, soft_wrap=True)


def _here(file: Path, settings: Settings, revision: str | None, *, force: bool) -> Preview:
    """Plan in the environment of the steps: the versions of its tools are part of the keys."""
    read_contract(ReleaseSpec, read_document(file), str(file))
    settings.site()
    asked = ["plan", "--spec", str(file), "--run", BY_HAND]
    options = [*(["--revision", revision] if revision else []), *(["--force"] if force else [])]
    with tempfile.TemporaryDirectory(prefix="slipway-plan-") as folder:
        look = Path(folder, "plan.json")
        run_step(
            [*asked, *options, "--look", str(look)], settings.site_file, instead="Airflow plans a model by its name."
        )
        return read_contract_json(Preview, look.read_bytes(), "the plan")


def _in_airflow(
    name: str, settings: Settings, conf: Mapping[str, Any], timeout: float | None, run_id: str | None
) -> Preview:
    progress = Console(stderr=True)
    with settings.airflow() as airflow:
        run, _ = start(airflow, dag_of(name), conf, run_id)

        def planned(view: RunView) -> bool:
            return view.run.ended or preview_of(view) is not None

        view = followed(progress, airflow, run, timeout, until=planned)
        preview = preview_of(view)
        if preview is None:
            end(progress, outcome_of(airflow, view))
            raise typer.Exit(REFUSED)
    return preview
