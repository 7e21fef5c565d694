"""Airflow's assets: one for each model."""

from airflow.sdk import Asset


def model_uri(name: str) -> str:
    """The URI of what serves a model.

    It is no address in the object store: for `s3:` Airflow would import boto3 with every parse of a DAG file.
    """
    return f"x-slipway://models/{name}"


def live_model(name: str) -> Asset:
    """What serves a model. Each promotion and each rollback is an event of it.

    Another DAG runs after them with `schedule=live_model("llama-3-8b")`. An event's `extra` names the release.
    """
    return Asset(name=f"slipway/{name}", uri=model_uri(name))
