"""Fleets in the command: which models a fleet has, and how their releases ended."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from slipway.cli.airflow.api import Airflow, NoSuchDagError, Run
from slipway.cli.airflow.patience import patiently
from slipway.cli.exit_codes import DONE, REFUSED
from slipway.cli.runs.follow import Follower
from slipway.cli.runs.outcome import RELEASES, Outcome
from slipway.cli.runs.revision_check import ARROW
from slipway.cli.runs.served import outcome_in_cluster
from slipway.cli.settings import Settings
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError, PipelineError
from slipway.tasks.contracts.spec.fleet import FLEETS, member_run

T = TypeVar("T")

ANSWER_S = 5.0
"""How long a command that can do without Airflow waits for it."""


def members_of(airflow: Airflow, name: str) -> tuple[str, ...]:
    """The models of a fleet, which the description of its DAG names; none if the name is a model's or Airflow has none.

    A model that became a fleet keeps its channel, and Airflow its DAG, which no spec makes any more.
    """
    if airflow.has_dag(f"{RELEASES}{name}"):
        return ()
    try:
        description = airflow.description(f"{FLEETS}{name}")
    except NoSuchDagError:
        return ()
    return tuple(member for member in description.partition(ARROW)[2].split(", ") if member)


def fleet_of(settings: Settings, name: str) -> tuple[str, ...]:
    """As `members_of`; none if Airflow does not answer, which is said on stderr."""
    try:
        with settings.airflow(ANSWER_S) as airflow:
            return members_of(airflow, name)
    except PipelineError as error:
        echo(f"{name} is taken for a model, because Airflow does not say whether it is a fleet: {error.what}", err=True)
        return ()


def refuse_fleet(airflow: Airflow, name: str) -> None:
    """Refuse the name of a fleet where that of one model is needed.

    Raises:
        InputError: it is that of a fleet.
    """
    if members := members_of(airflow, name):
        raise InputError(
            f"{name} is a fleet, whose models are promoted and rolled back one by one",
            expected=f"one of {', '.join(members)}",
            remedy=f"Name one of them; `slipway explain {name}` shows what is live of each.",
        )


def of_each(members: Iterable[str], read: Callable[[str], T]) -> tuple[dict[str, T], dict[str, PipelineError]]:
    """What `read` returns of each model, and why it cannot be read of the others."""
    found: dict[str, T] = {}
    errors: dict[str, PipelineError] = {}
    for member in members:
        try:
            found[member] = read(member)
        except PipelineError as error:
            errors[member] = error
    return found, errors


def runs_of(airflow: Airflow, run: Run, members: tuple[str, ...]) -> Iterator[Run]:
    """The runs in which a run of the fleet has begun to release its members."""
    for member in members:
        with contextlib.suppress(InputError):  # there is none
            yield airflow.run(f"{RELEASES}{member}", member_run(run.run_id))


def ends_of(airflow: Airflow, settings: Settings, run: Run, members: tuple[str, ...]) -> dict[str, Outcome]:
    """How the release of each member ended in a run of the fleet."""
    return {member: patiently(partial(_end_of, airflow, settings, member, run)) for member in members}


def _end_of(airflow: Airflow, settings: Settings, member: str, run: Run) -> Outcome:
    try:
        view = Follower(airflow, airflow.run(f"{RELEASES}{member}", member_run(run.run_id))).look()
    except InputError as error:
        return Outcome(REFUSED, f"not released: {error}")
    if not view.run.ended:
        return Outcome(REFUSED, f"its run {view.run.run_id} goes on: `slipway status {member}`")
    return outcome_in_cluster(airflow, settings, view)


def outcome_of_all(name: str, ends: Mapping[str, Outcome]) -> Outcome:
    """The outcome of a fleet's release: 0 if each member's is, the one other code that they have, or else 1."""
    codes = {end.exit_code for end in ends.values()} - {DONE}
    good = sum(end.exit_code == DONE for end in ends.values())
    code = DONE if not codes else codes.pop() if len(codes) == 1 else REFUSED
    return Outcome(code, f"fleet {name}: {good} of {len(ends)} models serve what was requested")
