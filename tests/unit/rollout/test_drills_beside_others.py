"""A drill beside a release that is measured or waits for a person, and beside pods and leases that go away."""

from dataclasses import replace

import pytest

from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.rollout.decide.blue_green import Goal
from slipway.tasks.steps import promote, roll_out
from tests.fakes.clock import ManualClock
from tests.fakes.documents.rollouts import channel, judged, published, released, version
from tests.fakes.kube.cluster import MemoryCluster, in_memory, standing
from tests.fakes.releases import SPEC
from tests.support.refused import refused
from tests.unit.rollout.test_drilling import FIRST, SECOND, AskedLoad, drilled, report_of, two_releases

LONG_S = 4 * 3600
AIRFLOW_RUN = "release__demo/scheduled-3"


@pytest.fixture
def load(workspace):
    return AskedLoad(workspace.clock)


@pytest.fixture
def waiting(workspace):
    """A candidate whose run has not renewed its lease for hours; the run's workspace."""
    two_releases(workspace)
    made, own = version(3), replace(workspace, dag_run=AIRFLOW_RUN)
    published(workspace, made)
    roll_out.run(made, own)
    judged(workspace, made)
    workspace.clock.sleep(LONG_S)
    return made, own


def test_a_release_that_waits_for_a_person_keeps_its_candidate_and_goes_live(workspace, cluster, load, waiting):
    before = standing(cluster)

    told = drilled(workspace, load)

    assert told.data["verdict"] == "skipped"
    assert "has not ended" in told.summary
    assert standing(cluster) == before
    promote.run(*waiting)
    assert channel(workspace).live.release_id == version(3).id


def test_a_run_that_has_ended_keeps_no_drill_away(workspace, cluster, load, waiting):
    ended = {"slipway-demo": cluster.lease_holder("slipway-demo").version}

    told = drilled(replace(workspace, ended_holders=ended), load)

    assert told.data["verdict"] == "passed"


def test_a_warm_previous_release_that_was_released_without_a_surge_stays_warm(workspace, cluster, load):
    released(workspace, 1, rollout={"surge": "none"})
    released(workspace, 2)
    before = standing(cluster)

    assert drilled(workspace, load).data["verdict"] == "passed"
    assert standing(cluster) == before


def test_a_task_that_is_cleared_later_leaves_a_release_that_was_warmed_meanwhile(workspace, cluster, load):
    two_releases(workspace)
    cluster.delete("Deployment", FIRST)
    drilled(workspace, load)
    RolloutReconciler.at(workspace.layout.release("demo", version(1).id), workspace, run="another").reach(Goal.WARM)
    before = standing(cluster)

    assert drilled(workspace, AskedLoad(workspace.clock)).data["verdict"] == "passed"
    assert standing(cluster)["deployments"] == before["deployments"]


class LosesLive(ManualClock):
    """The node of the live release goes away as soon as the previous one serves."""

    cluster = None

    def sleep(self, seconds):
        super().sleep(seconds)
        if self.cluster and standing(self.cluster)["services"].get("demo") == FIRST:
            self.cluster.unavailable.add(SECOND)
            self.cluster.failing[SECOND] = UnavailableError("its node is gone")


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_live_release_that_is_lost_meanwhile_gets_no_traffic_until_it_is_back(tmp_path, is_warm):
    clock = LosesLive()
    cluster = MemoryCluster(clock)
    workspace = replace(in_memory(tmp_path, cluster=cluster), clock=clock)
    two_releases(workspace)
    if not is_warm:
        cluster.delete("Deployment", FIRST)
    clock.cluster = cluster

    with pytest.raises(UnavailableError) as caught:
        drilled(workspace, AskedLoad(clock))

    assert f"no pod of {SECOND} is ready, and {FIRST} answers for it" in caught.value.what
    assert cluster.endpoints("demo")
    clock.cluster = None
    cluster.unavailable.discard(SECOND)
    del cluster.failing[SECOND]
    assert drilled(workspace, AskedLoad(clock)).data["verdict"] == "passed"
    assert standing(cluster)["services"] == {"demo": SECOND}
    assert (FIRST in standing(cluster)["deployments"]) is is_warm


class DeletesLease(ManualClock):
    """A person deletes the lease while the previous release serves."""

    cluster = None

    def sleep(self, seconds):
        super().sleep(seconds)
        if self.cluster and standing(self.cluster)["services"].get("demo") == FIRST:
            cluster, self.cluster = self.cluster, None
            cluster.delete("Lease", "slipway-demo")


def test_a_lease_that_a_person_deletes_costs_the_drill_and_not_the_live_release(tmp_path):
    clock = DeletesLease()
    cluster = MemoryCluster(clock)
    workspace = replace(in_memory(tmp_path, cluster=cluster), clock=clock)
    two_releases(workspace)
    clock.cluster = cluster

    told = drilled(workspace, AskedLoad(clock))

    assert told.data["verdict"] == "failed"
    assert "lost the lease" in report_of(told).problem
    assert standing(cluster)["services"] == {"demo": SECOND}
    assert cluster.lease_holder("slipway-demo") is None


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ({}, {"serving": {"replicas": {"min": 8, "max": 8}}}, "replicas instead of 8"),
        ({"engine": {**SPEC["engine"], "max_sequence_tokens": 150}}, {}, "max_sequence_tokens 150 instead of"),
    ],
)
def test_a_previous_release_that_offers_clients_less_is_refused(tmp_path, first, second, found):
    workspace = in_memory(tmp_path)
    released(workspace, 1, **first)
    released(workspace, 2, **second)

    with refused(what="cannot answer all that clients may ask", found=found):
        drilled(workspace, AskedLoad(workspace.clock))
    assert standing(workspace.connection)["services"] == {"demo": SECOND}
