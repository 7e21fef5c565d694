"""A failed step's pod stays for its log as long as the site wants, and not for ever."""

import shutil
from datetime import UTC, datetime, timedelta

import pytest
from airflow.dag_processing.dagbag import DagBag
from kubernetes.client import models as k8s

from slipway.airflow.dags import release_dags
from slipway.airflow.dags.failed_pods import expired, remove_failed_pods
from slipway.airflow.dags.left_behind import dags_that_restore, models_left
from slipway.airflow.site import current_site
from tests.support.paths import REPOSITORY

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LABELS = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/step": "build"}


def pod(phase="Failed", *, created_h_ago=100.0, ended_h_ago=None, evicted_h_ago=None):
    """A step's pod; an evicted one has a reason and no container status."""
    ended = None
    if ended_h_ago is not None:
        stamp = NOW - timedelta(hours=ended_h_ago)
        state = k8s.V1ContainerState(terminated=k8s.V1ContainerStateTerminated(exit_code=1, finished_at=stamp))
        ended = [k8s.V1ContainerStatus(name="base", image="i", image_id="i", ready=False, restart_count=0, state=state)]
    conditions = None
    if evicted_h_ago is not None:
        stamp = NOW - timedelta(hours=evicted_h_ago)
        conditions = [k8s.V1PodCondition(type="DisruptionTarget", status="True", last_transition_time=stamp)]
    return k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(name="p", creation_timestamp=NOW - timedelta(hours=created_h_ago)),
        status=k8s.V1PodStatus(phase=phase, container_statuses=ended, conditions=conditions),
    )


@pytest.mark.parametrize(
    ("which", "goes"),
    [
        (pod(ended_h_ago=47), False),
        (pod(ended_h_ago=49), True),
        (pod("Succeeded", ended_h_ago=49), True),
        (pod("Running"), False),
        (pod("Pending"), False),
        (pod("Unknown"), False),
        (pod(evicted_h_ago=1), False),
        (pod(evicted_h_ago=49), True),
        (pod(created_h_ago=49), True),
    ],
)
def test_a_finished_pod_goes_once_it_was_kept_long_enough(which, goes):
    assert expired([which], NOW, timedelta(hours=48)) == ([which] if goes else [])


def test_a_pod_that_just_ended_stays_even_where_the_site_keeps_none():
    just, older = pod(ended_h_ago=0.1), pod(ended_h_ago=0.5)

    assert expired([just, older], NOW, timedelta(0)) == [older]


def stored(cluster, name, *, ended_h_ago, labels=LABELS):
    """A failed pod as the cluster has it."""
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "slipway", "labels": dict(labels)},
        "spec": {"containers": [{"name": "base", "image": "i"}]},
    }
    made = cluster.create(document)
    stamp = (datetime.now(UTC) - timedelta(hours=ended_h_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    made["status"]["phase"] = "Failed"
    made["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = stamp


def test_only_old_pods_of_steps_are_deleted(cluster):
    kept_h = current_site().kubernetes.failed_pods_kept_h
    stored(cluster, "old", ended_h_ago=kept_h + 1)
    stored(cluster, "fresh", ended_h_ago=kept_h - 1)
    stored(cluster, "a-strangers", ended_h_ago=kept_h + 1, labels={"app": "other"})

    assert remove_failed_pods() == 1

    assert set(cluster.pods) == {"fresh", "a-strangers"}


def test_the_clock_of_the_cluster_counts_and_not_airflows(cluster):
    kept_h = current_site().kubernetes.failed_pods_kept_h
    stored(cluster, "fresh", ended_h_ago=1)
    cluster.leases = {"slipway-demo": renewed(datetime.now(UTC))}

    assert (remove_failed_pods(), dags_that_restore(Runs(), DAGS)) == (0, [])
    cluster.ahead = timedelta(hours=kept_h)
    assert (remove_failed_pods(), dags_that_restore(Runs(), DAGS)) == (1, ["rollback__demo"])


def test_the_dag_runs_hourly_and_not_once_for_each_hour_that_was_missed():
    dag = DagBag(str(REPOSITORY / "dags" / "releases.py")).dags["remove_failed_pods"]

    stored = dag.timetable.serialize()

    assert (dag.catchup, dag.max_active_runs) == (False, 1)
    assert (stored["expression"], stored["run_immediately"]) == ("17 * * * *", False)
    assert [task.task_id for task in dag.tasks] == ["remove_failed_pods", "find_left_behind", "restore"]


def lease(name, dag_run, *, renewed_min_ago):
    stamp = NOW - timedelta(minutes=renewed_min_ago)
    annotations = {"slipway.dev/dag-run": dag_run} if dag_run else None
    return k8s.V1Lease(
        metadata=k8s.V1ObjectMeta(name=name, annotations=annotations), spec=k8s.V1LeaseSpec(renew_time=stamp)
    )


class Runs:
    """Runs that Airflow knows to be active."""

    def __init__(self, *active):
        self.active = active

    def get_dr_count(self, dag_id, run_ids, states):
        known = [run.split("/") for run in self.active]
        return sum(dag == dag_id and run_ids in (None, [run]) for dag, run in known)


DEAD = "release__demo/run-1"
DAGS = {"release__demo", "rollback__demo", "drill__demo"}


@pytest.mark.parametrize(
    ("held", "active", "left"),
    [
        (lease("slipway-demo", DEAD, renewed_min_ago=16), (), ["demo"]),
        (lease("slipway-demo", DEAD, renewed_min_ago=14), (), []),
        (lease("slipway-demo", DEAD, renewed_min_ago=99), (DEAD,), []),
        (lease("slipway-demo", DEAD, renewed_min_ago=99), ("release__demo/run-2",), []),
        (lease("slipway-demo", DEAD, renewed_min_ago=99), ("rollback__demo/run-2",), []),
        (lease("slipway-demo", DEAD, renewed_min_ago=99), ("release__another/run-1",), ["demo"]),
        (lease("slipway-demo", "drill__demo/run-1", renewed_min_ago=99), (), ["demo"]),
        (lease("slipway-demo", None, renewed_min_ago=99), (), []),
        (lease("slipway-group.chat", DEAD, renewed_min_ago=99), (), []),
        (lease("somebody-elses", DEAD, renewed_min_ago=99), (), []),
    ],
)
def test_a_model_is_put_in_order_once_the_run_that_holds_it_has_ended_for_a_while(held, active, left):
    assert models_left([held], Runs(*active), NOW, DAGS) == left


@pytest.mark.parametrize(
    ("active", "standing"),
    [(DEAD, "release__demo"), ("rollback__demo/run-2", "rollback__demo"), ("release__another/run-1", "")],
)
def test_a_run_whose_spec_is_gone_is_an_error_and_stays_the_holder(caplog, active, standing):
    held = lease("slipway-demo", DEAD, renewed_min_ago=99)

    left = models_left([held], Runs(active), NOW, DAGS - {standing})

    assert left == ([] if standing else ["demo"])
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [f"a run of {standing} stands still" in error for error in errors] == ([True] if standing else [])


def test_the_hourly_run_reads_the_specs_again(tmp_path, caplog, cluster):
    shutil.copy(REPOSITORY / "specs" / "smollm2-135m.yaml", tmp_path)
    task = release_dags(tmp_path)["remove_failed_pods"].get_task("find_left_behind")
    cluster.leases = {
        "slipway-smollm2-135m": {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "slipway-smollm2-135m",
                "annotations": {"slipway.dev/dag-run": "release__smollm2-135m/run-1"},
            },
            "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"},
        }
    }
    for file in ("there", "gone"):
        caplog.clear()
        assert task.python_callable(Runs("release__smollm2-135m/run-1")) == []
        assert ("stands still" in caplog.text) == (file == "gone")
        (tmp_path / "smollm2-135m.yaml").unlink(missing_ok=True)


def renewed(moment):
    """A lease of a run that has ended, as the API server gives it."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "slipway-demo", "annotations": {"slipway.dev/dag-run": DEAD}},
        "spec": {"renewTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
    }


def test_the_dags_that_restore_are_those_of_the_leases_in_the_serving_namespace(cluster):
    cluster.leases = {"slipway-demo": renewed(datetime(2026, 1, 1, tzinfo=UTC))}

    assert dags_that_restore(Runs(), DAGS) == ["rollback__demo"]
