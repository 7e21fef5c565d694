"""The plugin that Airflow loads."""

from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

from slipway.airflow.page import PREFIX
from slipway.airflow.runs import TAB

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


async def page(scope: "Scope", receive: "Receive", send: "Send") -> None:
    """The page's application, imported with the first request: every process of Airflow loads its plugins."""
    from slipway.airflow.page.app import app  # noqa: PLC0415 - see above

    await app(scope, receive, send)


class SlipwayPlugin(AirflowPlugin):
    """Adds the pages of models to Airflow's UI: one to its menu, one as a tab of each run.

    An installed wheel registers it by its entry point, a checkout by plugins/slipway_plugin.py.
    """

    name = "slipway"
    fastapi_apps: list[Any] = [{"app": page, "url_prefix": PREFIX, "name": "Slipway"}]  # noqa: RUF012 - Airflow's way
    external_views: list[Any] = [  # noqa: RUF012
        {"name": "Models", "href": f"{PREFIX}/", "destination": "nav"},
        {
            "name": "Slipway",
            "href": f"{PREFIX}/runs/{{DAG_ID}}/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": TAB,
        },
    ]
