"""Airflow's assets: one for each model."""

from typing import TYPE_CHECKING

from airflow.sdk import Asset

from slipway.tasks.contracts.schedule import asset_of, model_asset

if TYPE_CHECKING:
    from airflow.sdk.definitions.asset import BaseAsset


def live_model(name: str) -> Asset:
    """What serves a model. Each promotion and each rollback is an event of it.

    Another DAG runs after them with `schedule=live_model("llama-3-8b")`. An event's `extra` names the release.
    """
    asset_name, uri = model_asset(name)
    return Asset(name=asset_name, uri=uri)


def trigger(schedule: str | None) -> "str | list[BaseAsset] | None":
    """The schedule of a DAG: a time, or every event of an asset that a spec names."""
    asset = asset_of(schedule)
    if asset is None:
        return schedule
    # a reference, because a URI's own scheme may have Airflow import a client
    return [Asset.ref(uri=asset) if "://" in asset else Asset.ref(name=asset)]
