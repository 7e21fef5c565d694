"""What a run does about the pods and the leases of runs that have ended."""

import json

import pytest
from airflow.providers.cncf.kubernetes.pod_generator import make_safe_label_value
from airflow.sdk.exceptions import AirflowException

from slipway.airflow.other_runs import OtherRuns
from tests.dags.step_runs import RUN_ID

DEAD = "manual__2025-12-31T00:00:00+00:00"


def held_by(dag_run, version="41"):
    """The model's lease."""
    metadata = {"name": "slipway-demo", "resourceVersion": version, "annotations": {"slipway.dev/dag-run": dag_run}}
    spec = {"holderIdentity": "run-of-somebody", "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {
        "slipway-demo": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    }


def pod_of(run_id, task_id, phase="Running", dag_id="release__demo"):
    labels = {"dag_id": dag_id, "run_id": make_safe_label_value(run_id), "task_id": task_id}
    name = f"demo-{task_id}-{phase.lower()}"
    spec = {"nodeName": "n1", "containers": [{"name": "base"}]}
    return {name: {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}, "spec": spec}}


def annotations(runs):
    return runs.cluster.created[-1]["metadata"]["annotations"]


def rolled_out(runs, step="roll-out"):
    runs.planned()
    runs.states["roll-out"] = "failed"
    runs.ends(runs.result(step))
    runs.execute(step)
    return json.loads(annotations(runs)["slipway.dev/ended-holders"])


def test_a_step_that_changes_the_model_knows_its_own_run_and_nothing_user_made_is_expanded(runs):
    rolled_out(runs)

    container = runs.cluster.created[0]["spec"]["containers"][0]
    variable = next(entry for entry in container["env"] if entry["name"] == "SLIPWAY_DAG_RUN")
    assert annotations(runs)["slipway.dev/dag-run"] == f"release__demo/{RUN_ID}"
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.annotations['slipway.dev/dag-run']"}}


def test_the_lease_of_a_run_that_has_ended_or_was_deleted_may_be_taken_over(runs):
    runs.cluster.leases = held_by(f"release__demo/{DEAD}", version="41")

    assert rolled_out(runs) == {"slipway-demo": "41"}


@pytest.mark.parametrize("holder", [f"release__demo/{DEAD}", f"rollback__demo/{DEAD}"])
def test_the_lease_of_a_run_that_goes_on_stays_its_own_and_so_do_its_pods(runs, holder):
    runs.active_runs.add(holder)
    runs.cluster.leases = held_by(holder)
    runs.cluster.pods |= pod_of(DEAD, "benchmark", dag_id=holder.partition("/")[0])

    assert rolled_out(runs) == {}
    assert "demo-benchmark-running" in runs.cluster.pods


def test_a_lease_that_no_airflow_run_took_is_left_alone(runs):
    runs.cluster.leases = held_by("")

    assert rolled_out(runs) == {}


def test_pods_that_a_dead_run_left_are_ended_before_its_lease_is_taken_over(runs):
    runs.cluster.leases = held_by(f"release__demo/{DEAD}")
    runs.cluster.pods |= (
        pod_of(DEAD, "promote") | pod_of(DEAD, "plan", "Failed") | pod_of("another", "promote", "Pending")
    )

    assert rolled_out(runs) == {"slipway-demo": "41"}
    assert set(runs.cluster.pods) == {"demo-plan-failed", "demo-promote-pending"}


def test_nothing_begins_while_a_dead_runs_pod_cannot_be_ended(runs):
    runs.cluster.leases = held_by(f"release__demo/{DEAD}")
    runs.cluster.pods |= pod_of(DEAD, "promote")
    runs.cluster.lingering.add("demo-promote-running")
    operator = runs.operator("roll-out")
    task = runs.context(operator)["ti"]
    others = OtherRuns(operator.client, "slipway", "slipway-serving", task, sleep=lambda _: None)

    with pytest.raises(AirflowException, match=r"demo-promote-running on node n1\. They could still change the model"):
        others.ended_holders(runs.release.spec)


def test_roll_back_first_ends_the_other_steps_of_its_own_run_and_no_other_runs(runs):
    runs.cluster.pods |= pod_of(RUN_ID, "roll-out") | pod_of(DEAD, "benchmark")

    rolled_out(runs, "roll-back")

    assert set(runs.cluster.pods) == {"demo-benchmark-running"}


def test_a_measuring_step_looks_at_no_lease(runs):
    runs.planned()
    runs.ends(runs.result("benchmark"))
    runs.execute("benchmark")

    assert not [line for line in runs.cluster.asked if "/leases/" in line]
    assert "slipway.dev/dag-run" not in annotations(runs)
