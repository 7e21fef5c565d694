"""`slipway plan`: what a release would do. Airflow plans a model by its name; this machine plans the file of a spec."""

import importlib
import json
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli.arguments import AsJson, Force, Revision, RunId, Timeout, settings_of
from slipway.cli.exit_codes import INTERRUPTED
from slipway.cli.settings import Settings
from slipway.cli.step_process import run_step
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError, PipelineError

if TYPE_CHECKING:
    from slipway.cli.json_documents import FleetPlanDocument
    from slipway.tasks.contracts.fit.forecast import Preview
    from slipway.tasks.contracts.spec.spec import ReleaseSpec

Failed = Callable[[str, int], None]
"""Takes why there is no plan, and the exit code."""
Planner = Callable[[Failed], "Preview"]
"""Plans one model."""

BY_HAND = "by-hand"
PRINTING = ("slipway.cli.runs.plan_tables", "slipway.cli.runs.screens")


def plan(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="NAME|FILE", help="Name of a model, or the file of a spec.")],
    revision: Revision = None,
    force: Force = False,
    as_json: AsJson = False,
    timeout: Timeout = 300.0,
    run_id: RunId = None,
) -> None:
    """Show what a release would do, without doing it.

    NAME: Airflow plans the spec that it has. FILE: this machine plans the spec in it, in seconds, with its own access
    to the Hub and the object store (HF_TOKEN, AWS credentials). Neither downloads a weight. Each model of a fleet is
    planned.

    Exit 65: the release is refused. With --json, a document with `error` and `exit_code` is printed when there is no
    plan, unless an option is wrong.
    """
    failed = _print_failure if as_json else _print_nothing
    try:
        fleet, planners = _planners(settings_of(context), what, revision, force=force, timeout=timeout, run_id=run_id)
        if fleet is not None:
            _plan_fleet(fleet, planners, as_json=as_json)
            return
        (planned,) = planners.values()
        preview = planned(failed)
    except PipelineError as error:
        failed(str(error), error.exit_code)
        raise
    _print([preview], preview, as_json=as_json)


def _plan_fleet(name: str, planners: "Mapping[str, Planner]", *, as_json: bool) -> None:
    """Print the plan of each model, and why others have none, whose worst code is the exit code."""
    from slipway.cli.json_documents import FleetPlanDocument, Problem  # noqa: PLC0415 - one model's plan need not wait

    members: list[Preview] = []
    problems: list[Problem] = []

    def failed(model: str, text: str, exit_code: int) -> None:
        problems.append(Problem(part=model, text=text, remedy="", exit_code=exit_code))

    for model, planned in planners.items():
        try:
            members.append(planned(partial(failed, model)))
        except PipelineError as error:
            problems.append(Problem.of(model, error))
        except typer.Exit as ended:
            if ended.exit_code == INTERRUPTED:
                raise
    _print(members, FleetPlanDocument(name=name, members=members, problems=problems), as_json=as_json)
    for problem in problems:
        echo(f"{problem.part}: {problem.text} {problem.remedy}".rstrip(), err=True)
    if problems:
        raise typer.Exit(max(problem.exit_code for problem in problems))


def _print(previews: "list[Preview]", document: "Preview | FleetPlanDocument", *, as_json: bool) -> None:
    if as_json:
        echo(document.model_dump_json(indent=2))
        return
    for preview in previews:
        _show(preview)


def _print_failure(error: str, exit_code: int) -> None:
    echo(json.dumps({"error": error, "exit_code": exit_code}, indent=2, ensure_ascii=False))


def _print_nothing(_error: str, _exit_code: int) -> None:
    """Leave it to what goes to stderr, which a person reads."""


def _planners(
    settings: Settings, what: str, revision: str | None, *, force: bool, timeout: float | None, run_id: str | None
) -> "tuple[str | None, dict[str, Planner]]":
    """What plans a model, or each model of a fleet, whose name is the first value."""
    if "." in what or "/" in what:  # a name has neither
        if run_id is not None:
            raise InputError(
                "--run-id names a run of Airflow, and a file is planned on this machine",
                found=what,
                remedy="Leave it out, or give the model's name.",
            )
        return _planners_here(Path(what), settings, revision, force=force)
    from slipway.cli.runs.fleets import members_of  # noqa: PLC0415 - imports what a file's plan need not wait for
    from slipway.cli.runs.plan_in_airflow import plan_in_airflow  # noqa: PLC0415

    def planner(model: str) -> Planner:
        return partial(plan_in_airflow, model, settings, revision, force=force, timeout=timeout, run_id=run_id)

    with settings.airflow(timeout) as airflow:
        members = members_of(airflow, what)
    return what if members else None, {model: planner(model) for model in members or (what,)}


def _planners_here(
    path: Path, settings: Settings, revision: str | None, *, force: bool
) -> "tuple[str | None, dict[str, Planner]]":
    from slipway.tasks.contracts.spec.fleet import is_fleet, read_specs  # noqa: PLC0415 - a name's plan need not wait
    from slipway.tasks.document_files import read_document  # noqa: PLC0415

    document = read_document(path)
    if not is_fleet(document):
        return None, {str(path): lambda _: plan_here(path, settings, revision, force=force)}

    def member_here(spec: "ReleaseSpec", _: Failed) -> "Preview":
        with tempfile.TemporaryDirectory(prefix="slipway-fleet-") as folder:
            file = Path(folder, f"{spec.name}.json")
            file.write_text(spec.model_dump_json(exclude_unset=True), encoding="utf-8")
            return plan_here(file, settings, revision, force=force)

    fleet = read_specs(document, str(path))
    return fleet.name, {model.name: partial(member_here, model) for model in fleet.models}


def plan_here(file: Path, settings: Settings, revision: str | None, *, force: bool) -> "Preview":
    """Plan a spec's file in the environment of the steps: the versions of its tools are part of the keys."""
    arguments = ["plan", "--spec", str(file), "--run", BY_HAND]
    options = [*([f"--revision={revision}"] if revision else []), *(["--force"] if force else [])]
    with tempfile.TemporaryDirectory(prefix="slipway-plan-") as folder:
        look = Path(folder, "plan.json")
        run_step(
            [*arguments, *options, "--look", str(look)],
            settings.known_site_file(),
            instead="Airflow plans a model by its name.",
            meanwhile=lambda: [importlib.import_module(name) for name in PRINTING],
        )
        from slipway.tasks.contracts.fit.forecast import Preview  # noqa: PLC0415 - imported meanwhile

        return Preview.model_validate_json(look.read_bytes())


def _show(preview: "Preview") -> None:
    from slipway.cli.console import console_on  # noqa: PLC0415
    from slipway.cli.runs.plan_tables import plan_footing, plan_heading, plan_table  # noqa: PLC0415 - as above

    console = console_on()
    console.print(plan_heading(preview.plan), soft_wrap=True)
    console.print(plan_table(preview))
    for line in plan_footing(preview):
        console.print(line, soft_wrap=True)
