"""A notifier that records releases in MLflow's tracking server and model registry, through mlflow-skinny."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseNotifier

from slipway.airflow.notify.notice import KEY, Notice, markdown, plain

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

ALIAS = "live"
RELEASE_TAG = "slipway.release"
FINISHED = "FINISHED"
TAG_CHARS, METRIC_CHARS = 5000, 250
"""Within what MLflow takes as the value of a tag and the name of a metric (3.17: 8,000 and 250; before 2.7: 5,000)."""


class MlflowNotifier(BaseNotifier):
    """Writes each promotion and refusal as a run, and keeps the alias `live` of the registered model.

    A promotion is also a version of the registered model, which has the model's name. A rollback moves the alias to the
    version of the release that is live again.
    """

    def __init__(self, *, mlflow_conn_id: str = "mlflow_default", experiment: str = "slipway") -> None:
        """Name the server.

        Args:
            mlflow_conn_id: a connection of type HTTP to the tracking server.
            experiment: its experiment for the runs, made if it is absent.
        """
        super().__init__()
        self.mlflow_conn_id, self.experiment = mlflow_conn_id, experiment

    def notify(self, context: "Context") -> None:
        """Record the event; one that is neither a promotion, a refusal nor a rollback is ignored."""
        # imported here: it takes a second, and is installed only where a site uses it
        from airflow.sdk import Connection  # noqa: PLC0415
        from mlflow import MlflowClient  # noqa: PLC0415

        values: Any = context
        client = MlflowClient(tracking_uri=address_of(Connection.get(self.mlflow_conn_id)))
        record(client, values[KEY], self.experiment)


def record(client: Any, notice: Notice, experiment: str) -> None:
    """Write one event with an `MlflowClient`."""
    if notice.event == "rolled-back":
        for version in client.search_model_versions(f"name = '{notice.model}'"):
            if version.tags.get(RELEASE_TAG) == notice.release:
                client.set_registered_model_alias(notice.model, ALIAS, version.version)
                return
    elif notice.event in {"promoted", "refused"}:
        run_id = _run(client, notice, experiment)
        if notice.event == "promoted":
            _register(client, notice, run_id)


def _run(client: Any, notice: Notice, experiment: str) -> str:
    found = client.get_experiment_by_name(experiment)
    experiment_id = found.experiment_id if found else client.create_experiment(experiment)
    name = f"{notice.release or notice.model} {notice.event}"
    run_id = str(client.create_run(experiment_id, run_name=name, tags=tags(notice)).info.run_id)
    for metric, value in notice.measured.items():
        client.log_metric(run_id, metric_name(metric), value)
    client.set_terminated(run_id, FINISHED)
    return run_id


def _register(client: Any, notice: Notice, run_id: str) -> None:
    if not client.search_registered_models(f"name = '{notice.model}'"):
        client.create_registered_model(notice.model)
    version = client.create_model_version(
        notice.model,
        source=notice.release_uri or notice.run_url,
        run_id=run_id,
        tags=tags(notice),
        description=markdown(notice),  # as MLflow's pages read it
        await_creation_for=0,
    )
    client.set_registered_model_alias(notice.model, ALIAS, version.version)


def tags(notice: Notice) -> dict[str, str]:
    """Facts of a release as tags of a run and of a version; those that are unknown are left out."""
    named = {
        "event": notice.event,
        "model": notice.model,
        "release": notice.release,
        "commit": notice.commit,
        "revision": notice.revision,
        "evidence": notice.evidence_uri,
        "report": notice.report_url,
        "airflow_run": notice.run_url,
        "why": plain(notice)[:TAG_CHARS],
    }
    return {f"slipway.{name}": value for name, value in named.items() if value}


def metric_name(name: str) -> str:
    """The name with the characters that MLflow takes: letters, digits and `_-. :/`."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "_-. :/") else "_" for each in name)[
        :METRIC_CHARS
    ]


def address_of(connection: "Connection") -> str:
    """The tracking server's address, with the connection's user and password, which MLflow sends as they are."""
    host = connection.host or ""
    scheme, _, rest = host.rpartition("://")
    login = (
        f"{quote(connection.login, safe='')}:{quote(connection.password or '', safe='')}@" if connection.login else ""
    )
    port = f":{connection.port}" if connection.port else ""
    return f"{scheme or connection.schema or 'http'}://{login}{rest.rstrip('/')}{port}"
