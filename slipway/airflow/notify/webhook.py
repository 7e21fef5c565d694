"""A notifier that posts a CloudEvent (CloudEvents 1.0, HTTP binding, structured mode)."""

import json
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from slipway.airflow.notify.notice import KEY, Notice
from slipway.tasks.contracts.schedule import model_asset

if TYPE_CHECKING:
    from airflow.sdk import Context

TYPE = "dev.slipway.release.{event}"
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
TIMEOUT_S = 10


class WebhookNotifier(BaseNotifier):
    """Posts each event to the address of an Airflow connection, with that connection's credentials and headers."""

    def __init__(self, *, http_conn_id: str = "slipway_webhook", endpoint: str | None = None) -> None:
        """Name where to post.

        Args:
            http_conn_id: a connection of type HTTP.
            endpoint: path below the connection's address.
        """
        super().__init__()
        self.http_conn_id, self.endpoint = http_conn_id, endpoint

    def notify(self, context: "Context") -> None:
        """Post the event once. An answer of 400 or above is an error."""
        # imported here, because it brings a client that would slow down every DAG parse
        from airflow.providers.http.hooks.http import HttpHook  # noqa: PLC0415

        values: Any = context
        HttpHook(method="POST", http_conn_id=self.http_conn_id).run(
            self.endpoint,
            data=json.dumps(cloud_event(values[KEY])),
            headers={"Content-Type": CONTENT_TYPE},
            extra_options={"timeout": TIMEOUT_S, "allow_redirects": False},
        )


def cloud_event(notice: Notice) -> dict[str, Any]:
    """The event as CloudEvents' JSON format has it. Lines of `why` are texts, for their reader to escape."""
    return {
        "specversion": "1.0",
        "id": f"{notice.dag_id}/{notice.run_id}/{notice.event}",
        "source": model_asset(notice.model)[1],
        "type": TYPE.format(event=notice.event),
        "subject": notice.release or notice.model,
        "time": notice.at,
        "datacontenttype": "application/json",
        "data": {
            "event": notice.event,
            "model": notice.model,
            "release": notice.release or None,
            "title": notice.title,
            "why": list(notice.lines),
            "measured": dict(notice.measured),
            "revision": notice.revision or None,
            "commit": notice.commit or None,
            "dag_id": notice.dag_id,
            "run_id": notice.run_id,
            "run_url": notice.run_url or None,
            "report_url": notice.report_url or None,
            "approval_url": notice.approval_url or None,
            "release_uri": notice.release_uri or None,
            "evidence_uri": notice.evidence_uri or None,
        },
    }
