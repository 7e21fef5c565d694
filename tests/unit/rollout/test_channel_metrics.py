"""The exporter: what channels say, as metrics, over a store in memory and over HTTP."""

import http.client
import shutil
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest

from slipway.tasks.adapters.telemetry.metrics_server import KEPT_S, MetricsServer
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.schedule import next_due
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import UnchangedRun
from slipway.tasks.contracts.wire import exposition
from slipway.tasks.rollout.act.channel_metrics import ChannelMetrics
from tests.fakes.clock import ManualClock
from tests.fakes.documents.rollouts import version
from tests.fakes.workspace import workspace as fake_workspace
from tests.support.waiting import PATIENCE_S

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.fixture
def workspace(tmp_path):
    return fake_workspace(tmp_path)


def put(workspace, uri, document):
    workspace.store.put_bytes(uri, canonical_json(document.model_dump(mode="json")))


def live(workspace, release):
    name = release.spec.name
    uri = workspace.layout.release(name, release.id)
    put(workspace, uri, release)
    channel = Channel(name=name).promoted(release.id, uri, at=AT, run="run-1", keep=2)
    put(
        workspace,
        workspace.layout.channel(name),
        channel.refused("other", at=AT + timedelta(hours=1), run="2", reason=""),
    )


def exported(workspace):
    page = exposition.text(ChannelMetrics(workspace.store, workspace.layout).read())
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line[0] != "#"}


def test_a_live_release_and_the_events_of_its_channel_are_exported(workspace):
    release = version(1, schedule="@daily")
    live(workspace, release)

    found = exported(workspace)

    commit = release.plan.source.commit
    assert (
        found.pop(
            f'slipway_live_release_info{{model="demo",release="{release.id}",engine="openvino",commit="{commit}"}}'
        )
        == 1
    )
    assert found == {
        f'slipway_live_release_since_timestamp_seconds{{model="demo",release="{release.id}"}}': AT.timestamp(),
        'slipway_channel_event_timestamp_seconds{model="demo",event="promoted"}': AT.timestamp(),
        'slipway_channel_event_timestamp_seconds{model="demo",event="refused"}': AT.timestamp() + 3600,
        'slipway_release_checked_timestamp_seconds{model="demo"}': AT.timestamp(),
        'slipway_release_due_timestamp_seconds{model="demo"}': datetime(2026, 3, 5, tzinfo=UTC).timestamp(),
    }


def test_a_run_with_nothing_to_do_keeps_the_schedule(workspace):
    live(workspace, version(1, schedule="@daily"))
    checked_at = AT + timedelta(days=3)
    checked = UnchangedRun(release_id="x", at=checked_at, run="run-9", schedule="0 3 * * *")
    put(workspace, workspace.layout.checked("demo"), checked)

    found = exported(workspace)

    assert found['slipway_release_checked_timestamp_seconds{model="demo"}'] == checked_at.timestamp()
    due = found['slipway_release_due_timestamp_seconds{model="demo"}']
    assert due == datetime(2026, 3, 8, 3, tzinfo=UTC).timestamp()


def test_a_check_from_before_the_promotion_is_not_the_last_one(workspace):
    live(workspace, version(1, schedule=None))
    checked = UnchangedRun(release_id="x", at=AT - timedelta(days=1), run="run-0", schedule="@daily")
    put(workspace, workspace.layout.checked("demo"), checked)

    found = exported(workspace)

    assert found['slipway_release_checked_timestamp_seconds{model="demo"}'] == AT.timestamp()
    assert not [name for name in found if name.startswith("slipway_release_due")]


def test_a_channel_that_cannot_be_read_hides_no_other(workspace):
    live(workspace, version(1))
    workspace.store.put_bytes(workspace.layout.channel("broken"), b"{")

    found = exported(workspace)

    assert found['slipway_channel_unreadable{model="broken"}'] == 1
    assert 'slipway_release_checked_timestamp_seconds{model="demo"}' in found


@pytest.mark.parametrize("schedule", [None, "@once", "@continuous"])
def test_a_schedule_without_times_is_never_due(schedule):
    assert next_due(schedule, AT) is None


def test_a_quarter_is_due_when_airflow_says():
    assert next_due("@quarterly", AT) == datetime(2026, 4, 1, tzinfo=UTC)


def test_prometheus_reads_the_page(workspace):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool on this machine")
    live(workspace, version(1, schedule="@daily"))
    page = exposition.text(ChannelMetrics(workspace.store, workspace.layout).read())

    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


class Served:
    def __init__(self, page, clock):
        self.server = MetricsServer("127.0.0.1", 0, page, clock)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def get(self, path="/metrics"):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=PATIENCE_S)
        connection.request("GET", path)
        response = connection.getresponse()
        try:
            return response.status, response.read().decode()
        finally:
            connection.close()


def test_scrapes_within_half_a_minute_read_the_store_once():
    clock, made = ManualClock(), []
    with Served(lambda: made.append(1) or f"page {len(made)}\n", clock) as served:
        pages = [served.get()[1], served.get()[1]]
        clock.sleep(KEPT_S)
        pages.append(served.get()[1])

    assert pages == ["page 1\n", "page 1\n", "page 2\n"]


def test_a_store_that_does_not_answer_is_an_error_and_no_old_page():
    def page():
        raise UnavailableError("the object store does not answer", remedy="Check it.")

    with Served(page, ManualClock()) as served:
        assert served.get()[0] == 503
        assert served.get("/healthz") == (200, "ok\n")
        assert served.get("/else")[0] == 404
