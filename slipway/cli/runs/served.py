"""Whether the cluster serves what a model's channel names as live: the channel outlives a cluster that is lost."""

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from slipway.cli.airflow.api import Airflow
from slipway.cli.exit_codes import DONE, REFUSED
from slipway.cli.runs.follow import RunView
from slipway.cli.runs.outcome import RELEASES, Outcome, live_already, outcome_of
from slipway.cli.settings import Settings
from slipway.tasks.contracts.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


class Services(Protocol):
    """What is read of the serving namespace."""

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """An object; None when it is absent."""

    def endpoints(self, service: str) -> "AbstractSet[str]":
        """Pods to which the Service sends connections."""


def unserved(cluster: Services, name: str, live: str | None) -> str | None:
    """Why nothing answers for the model although its channel names a live release; None when something does.

    Raises:
        PipelineError: the cluster cannot be asked.
    """
    if live is None:
        return None
    if cluster.get("Service", name) is None:
        return f"{live} is live according to the channel, but the cluster has no Service {name}"
    if not cluster.endpoints(name):
        return f"{live} is live according to the channel, but Service {name} has no ready pod"
    return None


def restore_hint(name: str) -> str:
    """What to do about it."""
    return f"If nothing is being restarted, `slipway restore {name}` deploys what the channel names."


def outcome_in_cluster(airflow: Airflow, settings: Settings, view: RunView) -> Outcome:
    """The outcome of a release that has ended, or why one that needed nothing does not serve.

    A cluster that cannot be asked is no reason: whoever releases may have no access to it.
    """
    outcome, live = outcome_of(airflow, view), live_already(view)
    if outcome.exit_code != DONE or live is None:
        return outcome
    name, why = view.run.dag_id.removeprefix(RELEASES), None
    with contextlib.suppress(PipelineError):
        why = unserved(settings.cluster(), name, live)
    return (
        replace(outcome, exit_code=REFUSED, text=f"nothing was done: {why}. {restore_hint(name)}") if why else outcome
    )
