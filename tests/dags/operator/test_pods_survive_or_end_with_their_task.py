from datetime import UTC, datetime

import pytest
from airflow.providers.amazon.aws.hooks import s3
from airflow.providers.amazon.aws.hooks.s3 import S3Hook
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException

from slipway.airflow.step_documents import s3_client_of
from tests.fakes.kube.kubernetes_pods import PodEnd, status


def test_a_pod_that_succeeded_while_airflow_was_away_is_not_run_again(runs):
    runs.planned()
    result = runs.result("benchmark", data={"requests_uri": "s3://x"})
    runs.ends(result)
    runs.execute("benchmark")
    pod = runs.cluster.created[0]
    pod["status"] = status(PodEnd(), datetime.now(UTC))
    runs.cluster.pods[pod["metadata"]["name"]] = pod
    runs.write(result.model_copy(update={"started_at": datetime.now(UTC)}))

    value = runs.execute("benchmark")

    assert value["data"] == {"requests_uri": "s3://x"}
    assert len(runs.cluster.created) == 1
    assert runs.cluster.pods == {}


def test_a_pod_that_cannot_start_is_deleted_for_it_may_hold_a_gpu(runs):
    runs.planned()
    runs.ends(None, phase="Pending")
    operator = runs.operator("build")
    operator.schedule_timeout_seconds = 0
    ExecutorSafeguard.tracker.set(operator)

    with pytest.raises(AirflowException, match="waited 0 s for a node"):
        operator.execute(runs.context(operator))

    assert len(runs.cluster.created) == 1
    assert runs.cluster.pods == {}


def test_a_killed_task_deletes_its_pod_even_while_it_is_being_created(runs):
    runs.planned()
    operator = runs.operator("build")
    ExecutorSafeguard.tracker.set(operator)

    def killed_now(pod):
        runs.cluster.pods[pod["metadata"]["name"]] = pod
        operator.on_kill()
        return PodEnd(phase="Running")

    runs.cluster.script = killed_now
    runs.cluster.create = lambda pod: _create_and_forget(runs.cluster, pod)
    with pytest.raises(AirflowException, match="no longer exists"):
        operator.execute(runs.context(operator))

    assert any(line.startswith("DELETE") for line in runs.cluster.asked)
    assert runs.cluster.pods == {}


def test_a_task_that_is_killed_right_after_it_adopted_a_pod_deletes_that_pod(runs, monkeypatch):
    runs.planned()
    runs.ends(runs.result("benchmark", data={"requests_uri": "s3://x"}))
    runs.execute("benchmark")
    adopted = runs.cluster.created[0]
    adopted["status"] = status(PodEnd(phase="Running"), datetime.now(UTC))
    runs.cluster.pods[adopted["metadata"]["name"]] = adopted
    operator = runs.operator("benchmark")
    ExecutorSafeguard.tracker.set(operator)

    left = []

    class KilledMeanwhile(S3Hook):
        def get_session(self, **options):
            operator.on_kill()
            left.extend(runs.cluster.pods)
            runs.cluster.pods.clear()  # or a task that leaves it would wait for its end
            return super().get_session(**options)

    s3_client_of.cache_clear()
    monkeypatch.setattr(s3, "S3Hook", KilledMeanwhile)
    with pytest.raises(AirflowException, match="no longer exists"):
        operator.execute(runs.context(operator))

    assert len(runs.cluster.created) == 1
    assert left == []


def _create_and_forget(cluster, pod):
    """The kill's DELETE arrives before the POST is answered, and wins."""
    cluster.created.append(pod)
    cluster.script(pod)
    return pod
