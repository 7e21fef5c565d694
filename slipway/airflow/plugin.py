"""The plugin that Airflow loads."""

from airflow.plugins_manager import AirflowPlugin


class SlipwayPlugin(AirflowPlugin):
    """Shows in the list of plugins that Slipway is installed.

    An installed wheel registers it by its entry point, a checkout by plugins/slipway_plugin.py.
    """

    name = "slipway"
