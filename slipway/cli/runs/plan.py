"""`slipway plan`: what a release would do. Airflow plans a model by its name; this machine plans the file of a spec."""

import importlib
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli.arguments import AsJson, Force, Revision, RunId, Timeout, settings_of
from slipway.cli.settings import Settings
from slipway.cli.step_process import run_step
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError, PipelineError

if TYPE_CHECKING:
    from slipway.tasks.contracts.fit.forecast import FleetPreview, Preview

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
        fleet, previews = _previews(
            settings_of(context), what, revision, force=force, timeout=timeout, run_id=run_id, failed=failed
        )
    except PipelineError as error:
        failed(str(error), error.exit_code)
        raise
    if as_json:
        echo(_document(fleet, previews).model_dump_json(indent=2))
        return
    for preview in previews:
        _show(preview)


def _document(fleet: str | None, previews: "Sequence[Preview]") -> "Preview | FleetPreview":
    from slipway.tasks.contracts.fit.forecast import FleetPreview  # noqa: PLC0415 - imported meanwhile

    return previews[0] if fleet is None else FleetPreview(name=fleet, members=tuple(previews))


def _print_failure(error: str, exit_code: int) -> None:
    echo(json.dumps({"error": error, "exit_code": exit_code}, indent=2, ensure_ascii=False))


def _print_nothing(_error: str, _exit_code: int) -> None:
    """Leave it to what goes to stderr, which a person reads."""


def _previews(
    settings: Settings,
    what: str,
    revision: str | None,
    *,
    force: bool,
    timeout: float | None,
    run_id: str | None,
    failed: Callable[[str, int], None],
) -> "tuple[str | None, list[Preview]]":
    """The plan of a model, or of each model of a fleet, whose name is the first value."""
    if "." in what or "/" in what:  # a name has neither
        if run_id is not None:
            raise InputError(
                "--run-id names a run of Airflow, and a file is planned on this machine",
                found=what,
                remedy="Leave it out, or give the model's name.",
            )
        return _plans_here(Path(what), settings, revision, force=force)
    from slipway.cli.runs.plan_in_airflow import plans_in_airflow  # noqa: PLC0415 - imports what a file's plan need not wait for

    return plans_in_airflow(what, settings, revision, force=force, timeout=timeout, run_id=run_id, failed=failed)


def _plans_here(
    path: Path, settings: Settings, revision: str | None, *, force: bool
) -> "tuple[str | None, list[Preview]]":
    from slipway.tasks.contracts.spec.fleet import is_fleet, read_specs  # noqa: PLC0415 - a name's plan need not wait
    from slipway.tasks.document_files import read_document  # noqa: PLC0415

    document = read_document(path)
    if not is_fleet(document):
        return None, [plan_here(path, settings, revision, force=force)]
    fleet, previews = read_specs(document, str(path)), []
    with tempfile.TemporaryDirectory(prefix="slipway-fleet-") as folder:
        for model in fleet.models:
            member = Path(folder, f"{model.name}.json")
            member.write_text(model.model_dump_json(exclude_unset=True), encoding="utf-8")
            previews.append(plan_here(member, settings, revision, force=force))
    return fleet.name, previews


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
    from slipway.cli.runs.plan_tables import plan_footing, plan_heading, plan_table  # noqa: PLC0415 - as above
    from slipway.cli.runs.screens import console_on  # noqa: PLC0415

    console = console_on()
    console.print(plan_heading(preview.plan), soft_wrap=True)
    console.print(plan_table(preview))
    for line in plan_footing(preview):
        console.print(line, soft_wrap=True)
