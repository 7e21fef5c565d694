"""Airflow's assets: one for each model."""

from airflow.sdk import Asset

from slipway.airflow.site import current_site
from slipway.tasks.contracts.stored.artifact import Layout


def live_model(name: str) -> Asset:
    """What serves a model: the document of its channel. Each promotion and each rollback is an event of it.

    Another DAG runs after them with `schedule=live_model("llama-3-8b")`. An event's `extra` names the release.
    """
    return Asset(name=f"slipway/{name}", uri=Layout(current_site().object_store.root).channel(name))
