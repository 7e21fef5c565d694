"""Registers Slipway with Airflow, and nothing else: Airflow executes every file here that .airflowignore leaves it."""

from airflow.plugins_manager import AirflowPlugin


class SlipwayPlugin(AirflowPlugin):
    """Shows in the list of plugins that Slipway is installed."""

    name = "slipway"
