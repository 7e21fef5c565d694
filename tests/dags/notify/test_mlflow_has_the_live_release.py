"""What MLflow's own registry says after promotions, a refusal and a rollback. MLflow is installed where a site uses it."""

import pytest

from slipway.airflow.notify.model_registry import address_of, metric_name, record
from slipway.airflow.notify.notice import Notice

AT = "2026-01-01T00:00:00+00:00"


def noticed(event, release):
    return Notice(
        event,
        "demo",
        AT,
        "release__demo",
        "manual__1",
        release,
        ("passed: [x](http://stranger.example)",),
        report_url="https://console.example/report.html",
        release_uri=f"s3://slipway/releases/demo/{release}/release.json",
        evidence_uri="s3://slipway/evidence",
        commit="c" * 40,
        measured={"latency_ms p99 at 8 %": 3.5},
    )


def test_the_alias_follows_what_is_live(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is in no environment of this checkout: docs/notifications.md")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")

    record(client, noticed("promoted", "demo-1"), "slipway")
    record(client, noticed("refused", "demo-2"), "slipway")
    assert client.get_model_version_by_alias("demo", "live").tags["slipway.release"] == "demo-1"
    record(client, noticed("promoted", "demo-3"), "slipway")
    assert client.get_model_version_by_alias("demo", "live").tags["slipway.release"] == "demo-3"
    record(client, noticed("rolled-back", "demo-1"), "slipway")

    version = client.get_model_version_by_alias("demo", "live")
    assert version.source == "s3://slipway/releases/demo/demo-1/release.json"
    assert version.tags["slipway.commit"] == "c" * 40
    assert version.tags["slipway.evidence"] == "s3://slipway/evidence"
    assert "http://stranger" not in version.description
    runs = client.search_runs([client.get_experiment_by_name("slipway").experiment_id])
    assert {run.info.run_name: run.info.status for run in runs} == {
        "demo-1 promoted": "FINISHED",
        "demo-2 refused": "FINISHED",
        "demo-3 promoted": "FINISHED",
    }
    assert {value for run in runs for value in run.data.metrics.values()} == {3.5}


def test_a_metrics_name_has_only_what_mlflow_takes():
    assert metric_name("latency_ms p99 at 8 % (ms)") == "latency_ms p99 at 8 _ _ms_"


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ({"host": "https://mlflow.example/"}, "https://mlflow.example"),
        ({"host": "mlflow", "port": 5000, "schema": "http"}, "http://mlflow:5000"),
        ({"host": "https://m.example", "login": "a@b", "password": "p/w"}, "https://a%40b:p%2Fw@m.example"),
    ],
)
def test_a_connection_becomes_the_servers_address(connection, address):
    from airflow.sdk import Connection

    assert address_of(Connection(conn_id="mlflow_default", conn_type="http", **connection)) == address
