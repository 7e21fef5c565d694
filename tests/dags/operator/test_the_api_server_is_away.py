"""The operator and the embedded cluster, whose API server goes away while a step's pod runs, and comes back."""

import asyncio
import shutil
import threading
from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from kubernetes import client, config

from slipway.airflow.outages import Outage, PatientRest
from slipway.airflow.starting import StepPodTrigger
from tests.dags.conftest import HOME
from tests.dags.operator.test_failed_pods_say_why import event_of
from tests.dags.places import CREDENTIALS, SITE
from tests.dags.step_runs import StepRuns
from tests.support.cluster_process import ClusterProcess
from tests.support.waiting import PATIENCE_S, until

IMAGE = "slipway/tasks-cpu:test"
PROGRAM = """#!/bin/sh
while [ ! -e {orders}/end ]; do sleep 0.05; done
read code < {orders}/end
echo "what a pod of an earlier try says" > "$SLIPWAY_TERMINATION_LOG"
exit "$code"
"""


class Cluster(ClusterProcess):
    """A cluster whose step pods end as they are told to."""

    def __init__(self, folder):
        self.orders, program = folder / "orders", folder / "image" / "python"
        self.orders.mkdir()
        program.parent.mkdir()
        program.write_text(PROGRAM.format(orders=self.orders))
        program.chmod(0o755)
        super().__init__(folder, {IMAGE: {"path_prefix": [str(program.parent)]}}, "slipway-dags")

    def ends(self, code):
        """Every pod, those that run included, ends with this exit code."""
        (self.orders / "new").write_text(f"{code}\n")
        (self.orders / "new").rename(self.orders / "end")

    def runs_on(self):
        """Pods run until they are told otherwise."""
        (self.orders / "end").unlink(missing_ok=True)

    @property
    def pods(self):
        return client.CoreV1Api(config.new_client_from_config(str(self.kubeconfig)))

    def listed(self):
        return self.pods.list_namespaced_pod("slipway").items

    def phases(self):
        return [pod.status.phase for pod in self.listed()]


@pytest.fixture(scope="module")
def real_cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    api = made.pods
    api.create_namespace({"metadata": {"name": "slipway"}})
    for account in ("slipway-measurer", "slipway-deployer"):
        api.create_namespaced_service_account("slipway", {"metadata": {"name": account}})
    api.create_namespaced_config_map(
        "slipway", {"metadata": {"name": "slipway-site"}, "data": {"site.yaml": SITE.read_text()}}
    )
    keys = {"AWS_ACCESS_KEY_ID": CREDENTIALS["login"], "AWS_SECRET_ACCESS_KEY": CREDENTIALS["password"]}
    api.create_namespaced_secret("slipway", {"metadata": {"name": "slipway-s3"}, "stringData": keys})
    yield made
    made.stop()


@pytest.fixture
def cluster(real_cluster):
    """The embedded cluster without a pod; KUBECONFIG names it."""
    shutil.copy(real_cluster.kubeconfig, HOME / "kubeconfig")
    yield real_cluster
    real_cluster.ends(0)
    for pod in real_cluster.listed():
        real_cluster.pods.delete_namespaced_pod(pod.metadata.name, "slipway", grace_period_seconds=0)
    until(lambda: not real_cluster.listed())
    real_cluster.runs_on()


@pytest.fixture
def runs(cluster, bucket):
    made = StepRuns(cluster, bucket)
    made.planned()
    # what the step's program would write at its end
    made.write(made.result("benchmark", started_at=datetime.now(UTC) + timedelta(hours=1)))
    return made


@pytest.fixture(autouse=True)
def _every_line_is_kept(caplog):
    caplog.set_level("INFO")


@pytest.fixture
def in_background():
    """Runs a function in a thread; its outcome, an exception included."""
    started = []

    def start(function):
        outcome = {}

        def run():
            try:
                outcome["value"] = function()
            except AirflowException as error:
                outcome["error"] = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        started.append(thread)

        def finished():
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            return outcome

        return finished

    yield start
    for thread in started:
        thread.join(PATIENCE_S)


def prepared(runs, try_number=1):
    """The operator of one try, and its context."""
    operator = runs.operator("benchmark")
    context = runs.context(operator)
    context["ti"].try_number = try_number
    return operator, context


def executed(runs, try_number=1):
    operator, context = prepared(runs, try_number)
    ExecutorSafeguard.tracker.set(operator)
    operator.execute(context)
    return runs.xcoms["benchmark", "return_value"]


def unmarked(cluster):
    """Take the label away that a try could not have written while the API server was away."""
    (pod,) = cluster.listed()
    cluster.pods.patch_namespaced_pod(pod.metadata.name, "slipway", {"metadata": {"labels": {"already_checked": None}}})
    return pod.metadata.name


def test_the_failed_pod_of_an_earlier_try_that_could_not_mark_it_is_not_taken_for_the_next_ones(cluster, runs, caplog):
    cluster.ends(75)
    with pytest.raises(AirflowException, match=r"exit code 75"):
        executed(runs, 1)
    left = unmarked(cluster)

    cluster.ends(0)
    value = executed(runs, 2)

    assert value["outcome"] == "done"
    assert f"Pod {left} of an earlier try failed: what a pod of an earlier try says (exit code 75)" in caplog.text
    until(lambda: cluster.phases() == ["Failed"])  # kept for its log
    assert cluster.listed()[0].metadata.labels["already_checked"] == "True"


def deferred(runs, try_number=1):
    """A task that waits in the triggerer: its operator, context and trigger."""
    operator, context = prepared(runs, try_number)
    operator.deferrable = True
    ExecutorSafeguard.tracker.set(operator)
    with pytest.raises(TaskDeferred) as raised:
        operator.execute(context)
    _, arguments = raised.value.trigger.serialize()
    return operator, context, StepPodTrigger(**arguments)


def test_a_pod_of_an_earlier_try_that_still_runs_is_adopted(cluster, runs, in_background):
    deferred(runs, 1)
    finished = in_background(lambda: executed(runs, 2))
    until(lambda: cluster.phases() == ["Running"])

    cluster.ends(0)

    assert finished()["value"]["outcome"] == "done"
    until(lambda: cluster.listed() == [])


def test_an_api_server_that_is_away_while_a_pod_runs_costs_no_try(cluster, runs, in_background, caplog):
    finished = in_background(lambda: executed(runs))
    until(lambda: cluster.phases() == ["Running"])

    cluster.kill()
    until(lambda: "the API server does not answer" in caplog.text)
    cluster.ends(0)
    cluster.start()

    assert finished()["value"]["outcome"] == "done"
    assert "the API server answers again" in caplog.text
    assert "urllib3" not in {record.name.partition(".")[0] for record in caplog.records}
    until(lambda: cluster.listed() == [])


def test_an_api_server_that_is_away_while_the_triggerer_waits_costs_no_try(cluster, runs, in_background, caplog):
    operator, context, trigger = deferred(runs)
    until(lambda: cluster.phases() == ["Running"])
    finished = in_background(lambda: asyncio.run(event_of(trigger)))

    cluster.kill()
    until(lambda: "the API server does not answer" in caplog.text)
    cluster.ends(0)
    cluster.start()
    operator.trigger_reentry(context, finished()["value"])

    assert runs.xcoms["benchmark", "return_value"]["outcome"] == "done"
    until(lambda: cluster.listed() == [])


def test_an_api_server_that_does_not_come_back_is_named_without_the_clients_words(cluster, runs):
    operator, context = prepared(runs)
    connection = operator.client.api_client
    connection.rest_client = PatientRest(connection.configuration, Outage(patience_s=0))
    ExecutorSafeguard.tracker.set(operator)
    cluster.kill()
    try:
        with pytest.raises(AirflowException) as caught:
            operator.execute(context)
    finally:
        cluster.start()

    assert str(caught.value).startswith("benchmark: the cluster's API server has not answered for 0 s (connection")
    assert "Check that the cluster is up" in str(caught.value)
    assert not isinstance(caught.value, AirflowFailException)


def test_a_pod_whose_creation_was_not_answered_is_not_created_twice(cluster, runs):
    operator, context = prepared(runs)
    create = operator.client.create_namespaced_pod

    def answer_is_lost(**request):
        create(**request)
        return create(**request)

    operator.client.create_namespaced_pod = answer_is_lost
    cluster.ends(0)
    ExecutorSafeguard.tracker.set(operator)
    operator.execute(context)

    assert runs.xcoms["benchmark", "return_value"]["outcome"] == "done"
    until(lambda: cluster.listed() == [])
