"""Sends what a trigger has reported to Airflow's database at once, instead of within a second."""

import logging
import signal
from collections import deque
from typing import Any

log = logging.getLogger(__name__)


async def send_events() -> None:
    """Send the events that this process's triggers have queued, as the process itself does once a second.

    Airflow 3.3.2 has no setting for that second and gives a trigger no access to the runner that waits for it, but the
    runner handles its process's signals. In any other process nothing happens: the event goes when it would have gone.
    """
    # imported here, where it always is already: only the triggerer runs triggers
    from airflow.jobs.triggerer_job_runner import TriggerRunner  # noqa: PLC0415

    runner = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if not isinstance(runner, TriggerRunner):
        return
    queued, failed = list(runner.events), list(runner.failed_triggers)
    try:
        await runner.sync_state_to_supervisor(finished_ids=[])
    except Exception:
        # it may have taken them off; one that arrives twice changes nothing
        _put_back(runner.events, queued)
        _put_back(runner.failed_triggers, failed)
        log.warning("an event waits for the triggerer's next round", exc_info=True)


def _put_back(queue: deque[Any], taken: list[Any]) -> None:
    queue.extendleft([each for each in reversed(taken) if each not in queue])
