"""Callbacks of tasks that tell what happened. Airflow calls them after it has recorded how the task ended.

A task whose process was lost gets its failure callback from the dag-processor, with a context that has less in it.
"""

import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from slipway.airflow.notify import observed, sending
from slipway.airflow.notify.notice import Notice
from slipway.airflow.site import current_site
from slipway.tasks.contracts.notifications import Event
from slipway.tasks.contracts.spec.spec import ReleaseSpec

if TYPE_CHECKING:
    from airflow.sdk import Context

Callback = Callable[["Context"], None]
OBSERVED: dict[Event, Callable[["Context", Event, str], Notice | None]] = {
    "promoted": observed.of_release,
    "refused": observed.of_release,
    "rolled-back": observed.of_rollback,
    "waiting-for-approval": observed.of_release,
    "drill-failed": observed.of_drill,
}
log = logging.getLogger(__name__)


def tells(event: Event, spec: ReleaseSpec) -> list[Callback]:
    """The callback of a task that ends with `event`; none where nobody is told of it."""
    notifiers = [each for each in current_site().notifications.of(spec.notifications) if event in each.events]
    if not notifiers:
        return []

    def tell(context: "Context") -> None:
        try:
            if notice := _noticed(context, event, spec.name):
                sending.send(notice, notifiers, context)
        except Exception:  # nothing that goes wrong here changes how a release ends
            log.exception("nobody was told that %s of %s happened", event, spec.name)

    return [tell]


def _noticed(context: "Context", event: Event, model: str) -> Notice | None:
    try:
        return OBSERVED[event](context, event, model)
    except Exception:  # the event is known, even where its run's results cannot be read
        log.exception("the results of the run cannot be read, so its notification has none")
        return observed.bare(context, event, model)


def warn_of_problems(spec: ReleaseSpec | None = None) -> None:
    """Warn, while DAGs are parsed, of notifiers of the site or of one spec that will not be called."""
    told = current_site().notifications
    site_problems = {str(each) for each in sending.problems(told)}
    found = sending.problems(told, spec.notifications) if spec else sending.problems(told)
    for problem in found:
        if spec is None or str(problem) not in site_problems:
            where = f"{spec.name}: " if spec else ""
            warnings.warn(f"{where}{problem}", stacklevel=2)
