"""A run of Airflow's that the cluster stops answering in the middle keeps the lease by which it is found."""

from dataclasses import replace

import pytest

from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.rollout.act.revert import restore, revert
from slipway.tasks.steps import roll_out
from tests.fakes.documents.rollouts import channel, released, version
from tests.fakes.kube.cluster import standing

RUN = "rollback__demo/run-9"


@pytest.fixture
def by_airflow(workspace):
    """Two releases, and the workspace of a run of Airflow's."""
    released(workspace, 1)
    released(workspace, 2)
    return replace(workspace, dag_run=RUN)


def lose(cluster, kind, *, handled):
    """Let the API server go away when an object of the kind is applied, before or after it is."""
    apply = cluster.apply

    def applied(objects):
        lost = any(item["kind"] == kind for item in objects)
        if handled or not lost:
            apply(objects)
        if lost:
            raise UnavailableError("the cluster does not answer")

    cluster.apply = applied


def test_a_roll_back_that_is_cut_off_after_the_traffic_moved_is_found_by_its_lease_and_put_in_order(
    by_airflow, cluster
):
    live = channel(by_airflow).live.release_id
    lose(cluster, "Service", handled=True)
    with pytest.raises(UnavailableError):
        revert("demo", by_airflow, run="run-9", reason="wrong answers")
    assert standing(cluster)["services"]["demo"] != live
    assert cluster.lease_holder("slipway-demo").dag_run == RUN

    del cluster.apply
    ended = {"slipway-demo": cluster.lease_holder("slipway-demo").version}
    restore("demo", replace(by_airflow, dag_run="rollback__demo/run-10", ended_holders=ended), run="run-10")

    assert ("demo", "RunLeftModel", "run-10") in cluster.told
    assert standing(cluster)["services"] == {"demo": live}
    assert standing(cluster)["leases"] == []


def test_a_stray_candidate_says_that_its_run_is_over(by_airflow, cluster):
    roll_out.run(version(3), replace(by_airflow, dag_run="release__demo/run-3"))
    ended = {"slipway-demo": cluster.lease_holder("slipway-demo").version}

    restore("demo", replace(by_airflow, ended_holders=ended), run="run-9")

    assert ("demo-candidate", "RunLeftModel", "run-9") in cluster.told
    assert "demo-candidate" not in standing(cluster)["services"]


def test_a_restore_that_is_cut_off_itself_is_found_again(by_airflow, cluster):
    cluster.delete("Service", "demo")
    lose(cluster, "Service", handled=False)

    with pytest.raises(UnavailableError):
        restore("demo", by_airflow, run="run-9")

    assert cluster.lease_holder("slipway-demo").dag_run == RUN


def test_a_roll_back_that_changed_nothing_keeps_no_lease(by_airflow, cluster):
    lose(cluster, "Service", handled=False)

    with pytest.raises(UnavailableError):
        revert("demo", by_airflow, run="run-9", reason="wrong answers")

    assert standing(cluster)["leases"] == []


def test_a_roll_back_by_hand_keeps_no_lease_for_nobody_would_know_that_it_ended(by_airflow, cluster):
    lose(cluster, "Service", handled=True)

    with pytest.raises(UnavailableError):
        revert("demo", replace(by_airflow, dag_run=""), run="run-9", reason="wrong answers")

    assert standing(cluster)["leases"] == []
