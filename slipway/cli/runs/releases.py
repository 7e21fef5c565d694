"""`slipway release`, `approve` and `rollback`: start a run in Airflow and follow it."""

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Never

import typer
from rich.console import Console

from slipway.cli.airflow.api import Airflow, NoSuchDagError, Run, RunExistsError, TaskError
from slipway.cli.airflow.approvals import APPROVED_NOW, REJECTED_BY, RESUMED_WITHIN_S, answered, approval_of
from slipway.cli.airflow.patience import patiently
from slipway.cli.arguments import AsJson, Force, Name, Revision, RunId, Timeout, settings_of
from slipway.cli.console import console_on
from slipway.cli.exit_codes import DONE, INTERRUPTED, REFUSED, TIMED_OUT, WRONG_INPUT
from slipway.cli.json_documents import EndOfRun, ReleaseDocument, RunState, StepState
from slipway.cli.runs.fleets import ends_of, members_of, outcome_of_all, refuse_fleet
from slipway.cli.runs.follow import RunView, follow
from slipway.cli.runs.outcome import Outcome, evidence_of, gate_of, note_of, outcome_of
from slipway.cli.runs.revision_check import check_revision
from slipway.cli.runs.screens import screen_on
from slipway.cli.runs.served import outcome_in_cluster
from slipway.cli.runs.tables import gate_table
from slipway.cli.settings import Settings
from slipway.cli.step_process import run_step
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError, PipelineError
from slipway.tasks.contracts.spec.fleet import FLEETS

RUNS_TO_SEARCH = 20
REASON_CHARS = 500
"""What Airflow's forms for a rollback and for an approval take."""
ROLLED_BACK, REJECTED, APPROVED = (
    ("a rollback", "rolled back"),
    ("a rejection", "rejected"),
    ("an approval", "approved"),
)


def dag_of(name: str) -> str:
    """The DAG of a model."""
    return f"release__{name}"


def parameters(
    revision: str | None, *, force: bool, approval: str | None = None, plan_only: bool = False
) -> dict[str, Any]:
    """The run's parameters that differ from the spec."""
    values = {"revision": revision, "force": force or None, "approval": approval, "plan_only": plan_only or None}
    return {name: value for name, value in values.items() if value is not None}


def start(airflow: Airflow, dag_id: str, conf: Mapping[str, Any], run_id: str | None) -> tuple[Run, bool]:
    """Start a run with these parameters, or get the run that has this id; the second value says whether it is new.

    Raises:
        InputError: the run with this id was started with other parameters.
    """
    try:
        return airflow.trigger(dag_id, conf, run_id), True
    except RunExistsError:
        run = patiently(lambda: airflow.run(dag_id, str(run_id)))
    if run.conf != dict(conf):
        raise InputError(
            f"run {run_id} exists and has other parameters",
            found=_described(run.conf),
            expected=_described(conf),
            remedy="Give another --run-id.",
        )
    return run, False


def release(  # noqa: PLR0913, PLR0917 - each is an option of the command
    context: typer.Context,
    name: Name,
    revision: Revision = None,
    force: Force = False,
    approval: Annotated[str | None, typer.Option(help="none or human; default: the spec's.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the run to its end.")] = True,
    timeout: Timeout = None,
    run_id: RunId = None,
    as_json: AsJson = False,
) -> None:
    """Release a revision, and follow the run until the release is promoted or refused; of a fleet, each model's.

    Exit 0: promoted, or nothing to do. 1: refused by the gate, or failed; or there was nothing to do while the
    cluster serves nothing. 65: wrong input. 75: Airflow does not answer.
    124: not finished within --timeout.
    """
    if approval not in {None, "none", "human"}:
        raise InputError("--approval is not valid", found=repr(approval), expected="none or human")
    console, settings = console_on(stderr=as_json), settings_of(context)
    with settings.airflow(timeout) as airflow:
        conf = parameters(revision, force=force, approval=approval)
        run, new, members = _start_release(settings, airflow, name, conf, run_id)
        announce(console, airflow, run, new=new)
        if not wait:
            if as_json:
                state = RunState.of(airflow, run)
                echo(ReleaseDocument(run=state, outcome=None, exit_code=None).model_dump_json(indent=2))
            return
        view = followed(console, airflow, run, timeout)
        ends = ends_of(airflow, settings, run, members)
        outcome = (
            outcome_of_all(name, ends) if members else patiently(lambda: outcome_in_cluster(airflow, settings, view))
        )
        airflow.annotate(run, note_of(outcome, view))
    gate, evidence = gate_of(view), evidence_of(view)
    report = _link(settings, f"{evidence}/report.html") if evidence else ""
    if as_json:
        steps = [StepState(**{name: getattr(step, name) for name in StepState.model_fields}) for step in view.steps]
        steps = [
            step.model_copy(update={"text": ends[step.name].text}) if step.name in ends else step for step in steps
        ]
        end_in_json(ReleaseDocument(**ending(airflow, view, outcome), steps=steps, gate=gate, report=report))
    for member, ended in ends.items():
        console.print(f"{member}: {ended.text}", style=_style(ended), soft_wrap=True)
    if gate:
        console.print(gate_table(gate))
    if report:
        console.print(f"report: {report}", soft_wrap=True)
    end(console, outcome)


def _start_release(
    settings: Settings, airflow: Airflow, name: str, conf: Mapping[str, Any], run_id: str | None
) -> tuple[Run, bool, tuple[str, ...]]:
    """As `start`, of a model or a fleet; the last value are the fleet's models."""
    members = members_of(airflow, name)
    for member in members:
        airflow.check_startable(dag_of(member))
    dag_id = f"{FLEETS}{name}" if members else dag_of(name)
    return *_checked_start(settings, airflow, dag_id, conf, run_id), members


def _checked_start(
    settings: Settings, airflow: Airflow, dag_id: str, conf: Mapping[str, Any], run_id: str | None
) -> tuple[Run, bool]:
    """As `start`, of a revision that exists."""
    if revision := conf.get("revision"):
        check_revision(settings, airflow, dag_id, revision)
    return start(airflow, dag_id, conf, run_id)


def _link(settings: Settings, uri: str) -> str:
    """A link to a document; its URI if this machine has no site file or no credentials for the store."""
    try:
        return settings.store()[0].link(uri)
    except PipelineError:
        return uri


def rollback(
    context: typer.Context,
    name: Name,
    reason: Annotated[
        str | None, typer.Option(help="Why, for the channel's history and notifications; asked for on a terminal.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="Id of a previous release; default: the newest.")] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Do it from this machine, with its own access, without Airflow.")
    ] = False,
    timeout: Timeout = None,
    run_id: RunId = None,
) -> None:
    """Make a previous release of a model live again.

    With --direct this machine does what Airflow's step does, under the same lock: in a checkout, with KUBECONFIG and
    credentials of the object store that may do what the step may.
    """
    console, settings = console_on(), settings_of(context)
    if direct:
        why = _reason(reason, *ROLLED_BACK)
        if timeout is not None:
            raise InputError(
                "--timeout limits how long a run of Airflow is followed, and --direct starts none",
                remedy="Leave one of the two out.",
            )
        run = run_id or f"direct-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        options = [f"--reason={why}", *([f"--to={to}"] if to else [])]
        arguments = ["revert", "--name", name, "--run", run, *options]
        console.print(f"run {run}", soft_wrap=True)  # before it starts: who interrupts it needs the name
        try:
            said = run_step(arguments, settings.known_site_file(), instead="Without --direct Airflow does it.")
        except PipelineError as error:
            again = f"Repeat the command with --run-id {run}: without it, it may go back one release more."
            remedy = f"{error.remedy} {again}".lstrip()
            raise type(error)(error.what, found=error.found, expected=error.expected, remedy=remedy) from error
        end(console, Outcome(DONE, said))
        return
    with settings.airflow(timeout) as airflow:
        refuse_fleet(airflow, name)
        dag_id = f"rollback__{name}"
        known = _conf_of(airflow, dag_id, run_id) if run_id and reason is None else None
        why = _reason(reason, *ROLLED_BACK) if known is None else known.get("reason", "")
        conf = {**({"reason": why} if why else {}), **({"to": to} if to else {})}
        started, new = start(airflow, dag_id, conf, run_id)
        announce(console, airflow, started, new=new)
        view = followed(console, airflow, started, timeout)
        outcome = _moved(airflow, view, "rolled back", name)
        airflow.annotate(started, f"{outcome.text}. Reason: {why}" if why else outcome.text)
    end(console, outcome)


def restore(context: typer.Context, name: Name, timeout: Timeout = None, run_id: RunId = None) -> None:
    """Make the cluster serve what the model's channel names as live, after the cluster or the bucket was lost.

    Nothing is built or measured again. A release that serves already stays as it is, unless the model moved to another
    bucket: then its pods are replaced one by one, and fetch it from there.
    """
    console = console_on()
    with settings_of(context).airflow(timeout) as airflow:
        refuse_fleet(airflow, name)
        run, new = start(airflow, f"rollback__{name}", {"to": "live"}, run_id)
        announce(console, airflow, run, new=new)
        view = followed(console, airflow, run, timeout)
        outcome = _moved(airflow, view, "restored", name)
        airflow.annotate(run, outcome.text)
    end(console, outcome)


def _moved(airflow: Airflow, view: RunView, what: str, name: str) -> Outcome:
    """The outcome of a run of the DAG that makes a release of a channel live."""
    if view.run.state != "success":
        return patiently(lambda: outcome_of(airflow, view))
    done = [result.summary for result in view.results.values()]
    return Outcome(DONE, f"{what}: {'; '.join(done) or name}")


def _conf_of(airflow: Airflow, dag_id: str, run_id: str) -> Mapping[str, Any] | None:
    """The parameters of a run that is to be followed; None if it is not there yet."""
    try:
        return airflow.run(dag_id, run_id).conf
    except InputError:
        return None


def _reason(given: str | None, what: str, done: str) -> str:
    """Why something is done to a release: what was given, or what a person answers on a terminal.

    Raises:
        InputError: there is neither, or it is too long for Airflow's form.
    """
    if given is None and sys.stdin is not None and sys.stdin.isatty():
        given = typer.prompt(f"Why is it {done}", err=True)
    reason = (given or "").strip()
    if 0 < len(reason) <= REASON_CHARS:
        return reason
    raise InputError(
        f"{what} needs a reason",
        found=f"{len(reason)} characters" if reason else "none",
        expected=f"what was seen, for whoever reads the history of the model, in at most {REASON_CHARS} characters",
        remedy='Give one: --reason "wrong answers since 14:00".',
    )


def approve(
    context: typer.Context,
    name: Name,
    reject: Annotated[bool, typer.Option("--reject", help="Refuse the candidate, which is then rolled back.")] = False,
    reason: Annotated[
        str | None, typer.Option(help="Why, for whoever is told; with --reject asked for on a terminal.")
    ] = None,
    timeout: Timeout = None,
    run_id: RunId = None,
) -> None:
    """Promote a candidate that passed its gate and whose release waits for approval.

    Exit 0: Airflow has resumed the run with the answer. 1: the approval ended otherwise. 124: Airflow did not resume it
    within --timeout, by default two minutes.
    """
    why = _reason(reason, *(REJECTED if reject else APPROVED)) if reject or reason is not None else ""
    said, option = ("rejected", "Reject") if reject else ("approved", "Approve")
    limit_s = RESUMED_WITHIN_S if timeout is None else timeout
    with settings_of(context).airflow(timeout) as airflow:
        refuse_fleet(airflow, name)
        run = airflow.run(dag_of(name), run_id) if run_id else _waiting_run(airflow, name)
        ended = answered(airflow, run, option, {"reason": why} if why else {}, limit_s)
    if ended is None:
        late = f"Airflow has not resumed run {run.run_id} within {limit_s:g} s."
        repeat = f"See `slipway status {name}`, and repeat the command if the run waits for approval."
        outcome = Outcome(TIMED_OUT, f"{late} {repeat}")
    elif reject and ended.startswith(REJECTED_BY):
        outcome = Outcome(DONE, f"rejected: run {run.run_id}, by {ended.removeprefix(REJECTED_BY)}")
    elif ended == APPROVED_NOW and not reject:
        outcome = Outcome(DONE, f"approved: run {run.run_id}{f': {why}' if why else ''}")
    else:
        outcome = Outcome(REFUSED, f"not {said}: run {run.run_id}: {ended}")
    end(console_on(), outcome)


def ending(airflow: Airflow, view: RunView, outcome: Outcome) -> dict[str, Any]:
    """The fields of EndOfRun."""
    state, remedy = RunState.of(airflow, view.run), outcome.remedy
    text = outcome.text.removesuffix(remedy).rstrip()
    return {"run": state, "outcome": text, "remedy": remedy, "exit_code": outcome.exit_code}


def end_in_json(document: EndOfRun) -> Never:
    """Print the document in place of the outcome, and exit with its code."""
    echo(document.model_dump_json(indent=2))
    raise typer.Exit(document.exit_code or DONE)


def end(console: Console, outcome: Outcome) -> None:
    """Print the outcome, and exit with its code unless that is 0."""
    # an input error explains itself; any other is easier to understand with the log lines before it
    if outcome.error and outcome.exit_code != WRONG_INPUT:
        _show_error(console, outcome.error)
    statement = outcome.text.removesuffix(outcome.remedy).rstrip()
    console.print(statement, style=_style(outcome), soft_wrap=True)
    if outcome.remedy:
        console.print(f"  → {outcome.remedy}", style="bold", soft_wrap=True)
    if outcome.exit_code != DONE:
        raise typer.Exit(outcome.exit_code)


def _style(outcome: Outcome) -> str:
    return "green" if outcome.exit_code == DONE else "bold red"


def followed(
    console: Console,
    airflow: Airflow,
    run: Run,
    timeout_s: float | None,
    until: Callable[[RunView], bool] = lambda view: view.run.ended,
) -> RunView:
    """Follow the run on the console; exit when a person stops that or `timeout_s` has passed. The run continues."""
    try:
        with screen_on(console) as screen:
            return follow(airflow, run, screen, until=until, timeout_s=timeout_s)
    except KeyboardInterrupt:
        code, why = INTERRUPTED, "stopped following"
    except TimeoutError as error:
        code, why = TIMED_OUT, str(error)
    except NoSuchDagError:
        _left(console, airflow, run, "stopped following", "goes on, once Airflow can read its DAG,")
        raise
    _left(console, airflow, run, why, "continues")
    raise typer.Exit(code)


def _left(console: Console, airflow: Airflow, run: Run, why: str, what_it_does: str) -> None:
    text = f"{why}; the run {what_it_does} at {airflow.run_url(run)}. Follow it with --run-id {run.run_id}."
    console.print(text, soft_wrap=True)


def announce(console: Console, airflow: Airflow, run: Run, *, new: bool) -> None:
    """Print which run is followed, and where Airflow shows it."""
    verb = "started" if new else "following existing"
    console.print(f"{verb} run {run.run_id}: {airflow.run_url(run)}", soft_wrap=True)


def _waiting_run(airflow: Airflow, name: str) -> Run:
    for run in airflow.runs(dag_of(name), RUNS_TO_SEARCH):
        if not run.ended and (task := approval_of(airflow, run)) and task.state == "awaiting_input":
            return run
    raise InputError(f"no release of {name} waits for approval", remedy=f"See `slipway status {name}` for its runs.")


def _show_error(console: Console, error: TaskError) -> None:
    for line in error.last_lines:
        console.print(f"  | {line}", style="dim", soft_wrap=True)


def _described(conf: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(conf.items())) or "no parameters"
