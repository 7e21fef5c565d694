"""The body of a webhook is a CloudEvent. The judge is the specification's own JSON Schema
(cloudevents/spec c2845a49, cloudevents/formats/cloudevents.json)."""

import json

import pytest
from jsonschema import Draft7Validator

from slipway.airflow.notify.notice import KEY, Notice
from slipway.airflow.notify.webhook import CONTENT_TYPE, WebhookNotifier, cloud_event
from slipway.tasks.contracts.notifications import EVENTS
from tests.fakes.servers.inboxes import WebhookInbox
from tests.support.paths import REPOSITORY

SCHEMA = json.loads((REPOSITORY / "tests/fixtures/cloudevents/cloudevents.json").read_text())
NOTICE = Notice("refused", "demo", "2026-01-01T00:00:00+00:00", "release__demo", "manual__1", why=("gate: </x>\x00",))


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("release", ["", "demo-1"])
def test_the_specifications_schema_takes_every_event(event, release):
    validator = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)

    validator.validate(cloud_event(Notice(**{**vars(NOTICE), "event": event, "release": release})))


def test_two_events_of_a_run_have_ids_of_their_own():
    assert len({cloud_event(Notice(**{**vars(NOTICE), "event": event}))["id"] for event in EVENTS}) == len(EVENTS)


def test_it_is_posted_with_the_connections_credentials_and_an_error_is_an_error(monkeypatch):
    with WebhookInbox() as taken, WebhookInbox(status=500) as refusing:
        monkeypatch.setenv("AIRFLOW_CONN_TAKEN", taken.connection)
        monkeypatch.setenv("AIRFLOW_CONN_REFUSING", refusing.connection)
        WebhookNotifier(http_conn_id="taken", endpoint="events").notify({KEY: NOTICE})
        with pytest.raises(Exception, match="500"):
            WebhookNotifier(http_conn_id="refusing").notify({KEY: NOTICE})

    ((path, headers, body),) = taken.posts
    assert (path, headers["Content-Type"]) == ("/events", CONTENT_TYPE)
    assert headers["Authorization"].startswith("Basic ")
    assert json.loads(body)["data"]["why"] == ["gate: </x>␀"]
    assert len(refusing.posts) == 1
