"""Refuses a revision that does not exist before a run is started: the run would find that out in a minute, and fail."""

import os

from slipway.cli.airflow.api import Airflow
from slipway.cli.deadline import within
from slipway.cli.settings import Settings
from slipway.tasks.contracts.errors import InputError, UnavailableError

ANSWER_S = 10.0
ARROW = " → "
"""Ends the name of the model in the description of its DAG (slipway/airflow/dags/release_dag.py)."""


def check_revision(settings: Settings, airflow: Airflow, dag_id: str, revision: str) -> None:
    """Ask the site's Hub for a revision of the model. HF_TOKEN is sent to it if it is set.

    What cannot be known from here is left to the run, which has its own access: without a site file, of a repository
    that this machine may not read, or while the Hub does not answer.

    Raises:
        NoSuchRevisionError: the repository has no such revision.
    """
    repo, arrow, _ = airflow.description(dag_id).partition(ARROW)
    if not arrow or "://" in repo or settings.site_file is None:
        return
    # the Hub's client takes half a second to import, which a release of the spec's own revision need not wait for
    from slipway.tasks.adapters.clock import SystemClock  # noqa: PLC0415
    from slipway.tasks.adapters.hub.hub import HuggingFaceHub  # noqa: PLC0415
    from slipway.tasks.adapters.hub.hub_errors import NoSuchRevisionError  # noqa: PLC0415

    try:
        endpoint = settings.site().hub.endpoint
        hub = HuggingFaceHub(endpoint, os.environ.get("HF_TOKEN"), SystemClock())
        within(ANSWER_S, lambda: hub.resolve(repo, revision))
    except NoSuchRevisionError:
        raise
    except (InputError, UnavailableError, TimeoutError):
        return
