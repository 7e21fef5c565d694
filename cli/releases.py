"""`slipway plan`, `release`, `approve` and `rollback`: start a run in Airflow and follow it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.airflow_api import Airflow, Run, RunExistsError, TaskError
from cli.follow import APPROVAL, RunView, follow
from cli.outcome import (
    DONE,
    INTERRUPTED,
    REFUSED,
    TIMED_OUT,
    WRONG_INPUT,
    Outcome,
    evidence_of,
    gate_of,
    outcome_of,
    plan_of,
)
from cli.screens import console_on_stdout, screen_on
from cli.settings import Settings
from cli.tables import gate_table, plan_footing, plan_heading, plan_table
from tasks.contracts.errors import InputError

RUNS_TO_SEARCH = 20

Name = Annotated[str, typer.Argument(help="The model's name, as in its spec.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit; the spec's own when absent.")]
Force = Annotated[bool, typer.Option("--force", help="Make every artifact anew, stored or not.")]
Timeout = Annotated[
    float | None, typer.Option(metavar="S", min=1, help="Stop following after S seconds; exit 124.", show_default=False)
]
RunId = Annotated[
    str | None, typer.Option(help="Identity of the run. A retry with the same one follows the run that exists.")
]


def dag_of(name: str) -> str:
    """The DAG of a model."""
    return f"release__{name}"


def asked(revision: str | None, *, force: bool, approval: str | None = None, plan_only: bool = False) -> dict[str, Any]:
    """The run's parameters: those that differ from the spec's own."""
    given = {"revision": revision, "force": force or None, "approval": approval, "plan_only": plan_only or None}
    return {name: value for name, value in given.items() if value is not None}


def start(airflow: Airflow, dag_id: str, conf: Mapping[str, Any], run_id: str | None) -> tuple[Run, bool]:
    """A run with these parameters, and whether it is new. With a run id that exists, that run.

    Raises:
        InputError: the run that exists was started with other parameters.
    """
    try:
        return airflow.trigger(dag_id, conf, run_id), True
    except RunExistsError:
        run = airflow.run(dag_id, str(run_id))
    if run.conf != dict(conf):
        raise InputError(
            f"run {run_id} exists and was started with {_words(run.conf)}, asked is {_words(conf)}. "
            "Give another --run-id."
        )
    return run, False


def plan(
    context: typer.Context,
    name: Name,
    revision: Revision = None,
    force: Force = False,
    timeout: Timeout = 300.0,
    run_id: RunId = None,
) -> None:
    """Say what a release would do, and do none of it."""
    console = console_on_stdout()
    with settings_of(context).airflow() as airflow:
        run, _ = start(airflow, dag_of(name), asked(revision, force=force, plan_only=True), run_id)

        def planned(view: RunView) -> bool:
            return view.run.ended or plan_of(view) is not None

        view = _followed(console, airflow, run, timeout, until=planned)
        found = plan_of(view)
        if found is None:
            end(console, outcome_of(airflow, view))
            raise typer.Exit(REFUSED)
    console.print(plan_heading(found), highlight=False, soft_wrap=True)
    console.print(plan_table(found), highlight=False)
    for line in plan_footing(found):
        console.print(line, highlight=False, soft_wrap=True)


def release(
    context: typer.Context,
    name: Name,
    revision: Revision = None,
    force: Force = False,
    approval: Annotated[str | None, typer.Option(help="none or human; the spec's own when absent.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the run to its end.")] = True,
    timeout: Timeout = None,
    run_id: RunId = None,
) -> None:
    """Release a revision, and follow it until it is promoted or refused.

    Exit 0: promoted, or nothing to do. 1: refused by the gate, or failed. 65: wrong input. 75: Airflow did not answer.
    124: not ended within --timeout.
    """
    if approval not in {None, "none", "human"}:
        raise InputError(f"--approval is {approval!r}; expected none or human.")
    console = console_on_stdout()
    with settings_of(context).airflow() as airflow:
        run, new = start(airflow, dag_of(name), asked(revision, force=force, approval=approval), run_id)
        _announce(console, airflow, run, new=new)
        if not wait:
            return
        view = _followed(console, airflow, run, timeout)
        outcome = outcome_of(airflow, view)
    if gate := gate_of(view):
        console.print(gate_table(gate))
    if evidence := evidence_of(view):
        console.print(f"evidence: {evidence}/report.html", highlight=False, soft_wrap=True)
    end(console, outcome)


def rollback(
    context: typer.Context,
    name: Name,
    reason: Annotated[str, typer.Option(help="Why; kept in the channel's history.")] = "",
    timeout: Timeout = None,
    run_id: RunId = None,
) -> None:
    """Put the previous release of a model back."""
    console = console_on_stdout()
    with settings_of(context).airflow() as airflow:
        run, new = start(airflow, f"rollback__{name}", {"reason": reason}, run_id)
        _announce(console, airflow, run, new=new)
        view = _followed(console, airflow, run, timeout)
        done = [result.summary for result in view.results.values()]
        succeeded = Outcome(DONE, f"rolled back: {'; '.join(done) or name}")
        end(console, succeeded if view.run.state == "success" else outcome_of(airflow, view))


def approve(
    context: typer.Context,
    name: Name,
    reject: Annotated[bool, typer.Option("--reject", help="Refuse; the candidate is rolled back.")] = False,
    run_id: RunId = None,
) -> None:
    """Let a candidate that passed its gate go live, when its release waits for a person."""
    with settings_of(context).airflow() as airflow:
        run = airflow.run(dag_of(name), run_id) if run_id else _waiting_run(airflow, name)
        airflow.answer(run, APPROVAL, "Reject" if reject else "Approve")
    typer.echo(f"{'rejected' if reject else 'approved'}: run {run.run_id}")


def settings_of(context: typer.Context) -> Settings:
    """The command's settings, which its callback prepared."""
    resolve: Callable[[], Settings] = context.obj
    return resolve()


def end(console: Console, outcome: Outcome) -> None:
    """Print how it ended, and leave with its exit code unless that is 0."""
    # a wrong input says itself what is wrong; anything else is better understood with what came before it
    if outcome.error and outcome.exit_code != WRONG_INPUT:
        _show_error(console, outcome.error)
    style = "green" if outcome.exit_code == DONE else "bold red"
    console.print(outcome.text, style=style, highlight=False, soft_wrap=True, markup=False)
    if outcome.exit_code != DONE:
        raise typer.Exit(outcome.exit_code)


def _followed(
    console: Console,
    airflow: Airflow,
    run: Run,
    timeout_s: float | None,
    until: Callable[[RunView], bool] = lambda view: view.run.ended,
) -> RunView:
    try:
        with screen_on(console) as screen:
            return follow(airflow, run, screen, until=until, timeout_s=timeout_s)
    except KeyboardInterrupt:
        code, why = INTERRUPTED, "stopped following"
    except TimeoutError as error:
        code, why = TIMED_OUT, str(error)
    words = f"{why}; the run goes on at {airflow.run_url(run)}. With --run-id {run.run_id} the same command follows it."
    console.print(words, highlight=False, soft_wrap=True, markup=False)
    raise typer.Exit(code)


def _announce(console: Console, airflow: Airflow, run: Run, *, new: bool) -> None:
    word = "run" if new else "follows the existing run"
    console.print(f"{word} {run.run_id}: {airflow.run_url(run)}", highlight=False, soft_wrap=True, markup=False)


def _waiting_run(airflow: Airflow, name: str) -> Run:
    for run in airflow.runs(dag_of(name), RUNS_TO_SEARCH):
        if not run.ended and any(
            task.task_id == APPROVAL and task.state == "awaiting_input" for task in airflow.tasks(run)
        ):
            return run
    raise InputError(f"no release of {name} waits for a person. `slipway status {name}` shows its runs.")


def _show_error(console: Console, error: TaskError) -> None:
    for line in error.last_lines:
        console.print(f"  | {line}", style="dim", highlight=False, soft_wrap=True, markup=False)


def _words(conf: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(conf.items())) or "no parameters"
