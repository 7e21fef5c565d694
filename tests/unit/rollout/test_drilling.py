"""A drill: to the release before and back again, with nothing changed in the end."""

import pytest

from slipway.tasks.contracts.errors import ConflictError, InputError, UnavailableError
from slipway.tasks.contracts.measured.drill import DrillReport, DrillRequest
from slipway.tasks.contracts.measured.measurement import unpacked
from slipway.tasks.contracts.spec.rollout import DrillSettings
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.steps import drill, revert, roll_out
from tests.fakes.clock import ManualClock
from tests.fakes.counted_load import LATENCY_S, CountedLoad
from tests.fakes.documents.rollouts import channel, judged, released, version
from tests.fakes.kube.cluster import KilledError, MemoryCluster, in_memory, standing

ASKED = DrillRequest(name="demo", run="run-9", settings=DrillSettings(request_rate=2.0, seconds=30))
FIRST, SECOND = version(1).id, version(2).id
HOSTS = {"host": "{name}.models.example", "grpc_host": "{name}-grpc.models.example"}


class AskedLoad(CountedLoad):
    """What a drill of these tests asks for."""

    def __init__(self, clock):
        super().__init__(clock, ASKED.settings.request_rate)

    def __call__(self, model, rate, requests, timeout_s, clock):
        assert (model, rate, clock) == ("demo", ASKED.settings.request_rate, self.clock)
        assert [request.prompt for request in requests] == ["What is two plus two?"]
        assert timeout_s > 0
        return self


@pytest.fixture
def load(workspace):
    return AskedLoad(workspace.clock)


def two_releases(workspace, **changes):
    found = [released(workspace, number, **changes) for number in (1, 2)]
    workspace.connection.changes.clear()
    workspace.connection.told.clear()
    return found


def drilled(workspace, load, request=ASKED):
    return drill.run(request, workspace, load_of=load)


def report_of(outcome):
    return DrillReport.model_validate(outcome.data["report"])


def test_the_traffic_goes_to_the_previous_release_and_back_and_the_channel_stays(workspace, cluster, load):
    two_releases(workspace)
    before, named = standing(cluster), channel(workspace)

    told = drilled(workspace, load)

    pointed = [change for change in cluster.changes if change == "apply Service demo"]
    assert (len(pointed), standing(cluster), channel(workspace)) == (2, before, named)
    report = report_of(told)
    assert (told.data["verdict"], report.verdict, report.problem) == ("passed", "passed", "")
    assert ([flip.to for flip in report.flips], report.was_warm) == ([FIRST, SECOND], True)
    assert (report.live, report.previous) == (SECOND, FIRST)


def test_the_report_has_the_requests_of_each_part_and_lies_with_the_evidence_of_the_run(workspace, load):
    two_releases(workspace)

    told = drilled(workspace, load)

    report = report_of(told)
    assert DrillReport.model_validate_json(workspace.store.read_bytes(told.data["report_uri"])) == report
    assert told.data["report_uri"] == f"{workspace.layout.evidence('demo', SECOND, 'run-9')}/drill.json"
    assert len(unpacked(workspace.store.read_bytes(report.requests_uri))) == report.requests == 180
    assert [(phase.phase, phase.requests) for phase in report.phases] == [("before", 60), ("during", 60), ("after", 60)]
    assert {phase.latency_p99_ms for phase in report.phases} == {LATENCY_S * 1e3}


def test_one_request_that_fails_is_enough_for_a_red_drill(workspace, cluster, load):
    two_releases(workspace)
    load.fails = lambda at_s: "connection refused" if at_s == 30.0 else ""

    told = drilled(workspace, load)

    report = report_of(told)
    assert (told.data["verdict"], report.failed, report.first_failure) == ("failed", 1, "connection refused")
    assert [phase.failed for phase in report.phases] == [0, 1, 0]
    assert (SECOND, "DrillFailed", "run-9") in cluster.told


def test_a_drill_whose_requests_were_never_answered_in_a_part_is_no_proof(workspace, cluster, load):
    two_releases(workspace)
    load.row = lambda number: CountedLoad.row(load, number % 60)

    told = drilled(workspace, load)

    assert told.data["verdict"] == "inconclusive"
    assert (SECOND, "DrillFailed", "run-9") in cluster.told


def test_events_tell_of_a_drill_at_the_live_release(workspace, cluster, load):
    two_releases(workspace)

    drilled(workspace, load)

    assert cluster.told == [(SECOND, "DrillStarted", "run-9"), (SECOND, "DrillPassed", "run-9")]


def test_pods_that_the_drill_started_are_removed_again(workspace, cluster, load):
    two_releases(workspace)
    cluster.delete("Deployment", FIRST)
    cluster.unavailable.add(FIRST)

    report = report_of(drilled(workspace, load))

    assert (report.was_warm, report.verdict) == (False, "passed")
    assert report.ready_s > 0
    assert standing(cluster) == {"deployments": [SECOND], "services": {"demo": SECOND}, "leases": []}


def test_the_previous_release_gets_as_many_pods_as_serve_and_has_its_own_number_afterwards(tmp_path):
    workspace = in_memory(tmp_path, serving={"scaler": {"kind": "hpa"}})
    cluster = workspace.connection
    scaled = {"serving": {"replicas": {"min": 1, "max": 8}, "autoscale": {"metric": "request_rate", "target": 5}}}
    two_releases(workspace, **scaled)
    cluster.scale("Deployment", SECOND, 4)
    cluster.started.clear()
    scaler = cluster.get("HorizontalPodAutoscaler", "demo")
    cluster.changes.clear()

    drilled(workspace, AskedLoad(workspace.clock))

    assert f"scale Deployment {FIRST} to 4" in cluster.changes
    assert [cluster.get("Deployment", name)["spec"]["replicas"] for name in (FIRST, SECOND)] == [1, 4]
    assert cluster.get("HorizontalPodAutoscaler", "demo") == scaler
    assert scaler["spec"]["scaleTargetRef"]["name"] == SECOND


def test_a_previous_release_that_cannot_start_gets_no_traffic_and_the_report_says_why(workspace, cluster, load):
    two_releases(workspace)
    cluster.delete("Deployment", FIRST)
    cluster.unavailable.add(FIRST)
    cluster.failing[FIRST] = UnavailableError("not available after 600 s")
    cluster.changes.clear()

    told = drilled(workspace, load)

    report = report_of(told)
    assert (told.data["verdict"], report.problem) == ("failed", "not available after 600 s")
    assert (report.ready_s, report.flips, report.requests, report.requests_uri) == (None, (), 0, None)
    assert "apply Service demo" not in cluster.changes
    assert standing(cluster) == {"deployments": [SECOND], "services": {"demo": SECOND}, "leases": []}


def test_a_flip_that_fails_is_taken_back_and_what_was_sent_until_then_is_reported(workspace, cluster, load):
    two_releases(workspace)
    started = cluster.endpoints
    cluster.endpoints = lambda name: set() if standing(cluster)["services"]["demo"] == FIRST else started(name)

    told = drilled(workspace, load)

    report = report_of(told)
    assert (report.verdict, report.flips) == ("failed", ())
    assert "does not reach" in report.problem
    assert [phase.requests > 0 for phase in report.phases] == [True, True, False]
    assert standing(cluster)["services"] == {"demo": SECOND}


@pytest.mark.parametrize("releases", [0, 1])
def test_without_a_previous_release_there_is_nothing_to_try_out(workspace, cluster, load, releases):
    for number in range(releases):
        released(workspace, number + 1)
    cluster.changes.clear()

    told = drilled(workspace, load)

    assert (told.data["verdict"], cluster.changes) == ("skipped", [])
    assert "no previous release" in told.summary


def test_while_a_release_is_in_progress_there_is_no_drill(workspace, cluster, load):
    two_releases(workspace)
    roll_out.run(version(3), workspace)
    cluster.changes.clear()

    told = drilled(workspace, load)

    assert (told.data["verdict"], cluster.changes, load.began) == ("skipped", [], None)
    assert "run run-3" in told.summary


def test_a_live_release_that_does_not_serve_is_restored_first_and_not_drilled(workspace, cluster, load):
    two_releases(workspace)
    cluster.delete("Deployment", SECOND)

    with pytest.raises(InputError) as caught:
        drilled(workspace, load)

    assert "slipway restore demo" in caught.value.remedy
    assert standing(cluster)["leases"] == []


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ({"serving": {"exposure": "ingress"}}, {}, "serving.exposure ingress of the previous release"),
        ({}, {"rollout": {"surge": "none"}}, ""),
        ({}, {"serving": {"group": "shared"}}, "serving.group shared"),
    ],
)
def test_releases_that_cannot_be_exchanged_without_an_interruption_are_refused(tmp_path, first, second, found):
    routes = {"routes": {"kind": "gateway", "gateway": {"name": "models"}, **HOSTS}}
    workspace = in_memory(tmp_path, serving=routes)
    released(workspace, 1, **first)
    released(workspace, 2, **second)
    workspace.connection.changes.clear()

    with pytest.raises(InputError) as caught:
        drilled(workspace, AskedLoad(workspace.clock))

    assert caught.value.found == found
    assert [change for change in workspace.connection.changes if "slipway-" not in change] == []


@pytest.mark.parametrize("warm", [True, False])
def test_a_signal_at_any_change_leaves_the_live_release_live(tmp_path, warm):
    def world():
        workspace = in_memory(tmp_path)
        two_releases(workspace)
        if not warm:
            workspace.connection.delete("Deployment", FIRST)
            workspace.connection.changes.clear()
        return workspace, AskedLoad(workspace.clock)

    workspace, load = world()
    before, named = standing(workspace.connection), channel(workspace)
    drilled(workspace, load)
    count = len(workspace.connection.changes)
    assert count > 6
    for number in range(1, count - 1):  # the first takes the lock, and the last returns it
        for moment in ("before", "after"):
            workspace, load = world()
            workspace.connection.dies_at = (number, moment)
            with pytest.raises(KilledError):
                drilled(workspace, load)

            assert standing(workspace.connection) == before, f"{moment} change {number}"
            assert (channel(workspace), load.abandoned) == (named, True)


class MortalCluster(MemoryCluster):
    """Nothing that a killed process still tries changes it, until `dead` is taken back."""

    dead = False

    def __setattr__(self, name, value):
        if name == "dies_at" and value is None and getattr(self, "dies_at", None) is not None:
            self.dead = True
        super().__setattr__(name, value)

    def _change(self, words):
        if self.dead:
            raise KilledError(f"{words}: it is dead")
        return super()._change(words)


def again(workspace):
    told = drilled(workspace, AskedLoad(workspace.clock))
    assert told.data["verdict"] == "passed"


def go_back(workspace):
    revert.run(RevertRequest(name="demo", run=ASKED.run, reason="it repeats itself"), workspace)


def release_another(workspace):
    made = version(3, run=ASKED.run)
    roll_out.run(made, workspace)
    assert standing(workspace.connection)["services"] == {"demo": SECOND, "demo-candidate": made.id}
    judged(workspace, made, "failed")


@pytest.mark.parametrize(
    ("what_comes_next", "live"),
    [(again, SECOND), (go_back, FIRST), (release_another, SECOND)],
    ids=["another drill", "rollback", "release"],
)
def test_after_a_kill_at_any_change_the_next_run_goes_on(tmp_path, what_comes_next, live):
    def world():
        clock = ManualClock()
        workspace = in_memory(tmp_path, cluster=MortalCluster(clock))
        object.__setattr__(workspace, "clock", clock)
        two_releases(workspace)
        workspace.connection.delete("Deployment", FIRST)
        workspace.connection.changes.clear()
        return workspace, AskedLoad(clock)

    workspace, load = world()
    drilled(workspace, load)
    count = len(workspace.connection.changes)
    served = set()
    for number in range(count):
        for moment in ("before", "after"):
            workspace, load = world()
            cluster = workspace.connection
            cluster.dies_at = (number, moment)
            with pytest.raises(KilledError):
                drilled(workspace, load)
            cluster.dead = False
            served.add(standing(cluster)["services"]["demo"])

            what_comes_next(workspace)

            assert standing(cluster)["services"]["demo"] == live, f"killed {moment} change {number}"
            assert channel(workspace).live.release_id == live
            if what_comes_next is again:  # it removes what the first attempt started
                assert standing(cluster)["deployments"] == [SECOND], f"killed {moment} change {number}"
    assert served == {FIRST, SECOND}


class DrillThatEnds(ManualClock):
    """After a minute the drill that holds the lock returns it."""

    cluster = None

    def sleep(self, seconds):
        super().sleep(seconds)
        if self.cluster and self.seconds > 60:
            self.cluster.release_lease("slipway-demo", "run-9")


def held_by_a_drill(tmp_path, clock):
    workspace = in_memory(tmp_path, cluster=MemoryCluster(clock))
    object.__setattr__(workspace, "clock", clock)
    released(workspace, 1)
    workspace.connection.acquire_lease("slipway-demo", "run-9", 3600, dag_run="drill__demo/scheduled")
    return workspace


def test_a_release_that_comes_waits_for_the_drill_that_runs(tmp_path):
    clock = DrillThatEnds()
    workspace = held_by_a_drill(tmp_path, clock)
    clock.cluster = workspace.connection

    roll_out.run(version(2), workspace)

    assert clock.seconds > 60
    assert standing(workspace.connection)["services"]["demo-candidate"] == SECOND


def test_a_release_is_tried_again_later_if_the_drill_goes_on_and_on(tmp_path):
    workspace = held_by_a_drill(tmp_path, ManualClock())

    with pytest.raises(UnavailableError, match="a drill of demo is in progress"):
        roll_out.run(version(2), workspace)


def test_a_rollback_does_not_wait_and_says_how_to_end_the_drill(tmp_path):
    workspace = held_by_a_drill(tmp_path, ManualClock())
    workspace.connection.release_lease("slipway-demo", "run-9")
    released(workspace, 2)
    workspace.connection.acquire_lease("slipway-demo", "run-9", 3600, dag_run="drill__demo/scheduled")

    with pytest.raises(ConflictError) as caught:
        revert.run(RevertRequest(name="demo", run="run-10", reason="it repeats itself"), workspace)

    assert caught.value.what == "a drill of demo is in progress"
    assert "mark Airflow's run drill__demo/scheduled as failed" in caught.value.remedy


class Interrupting(ManualClock):
    """Does something when the drill has flipped to the previous release."""

    cluster = act = None

    def sleep(self, seconds):
        super().sleep(seconds)
        flipped = self.cluster and standing(self.cluster)["services"].get("demo") == FIRST
        if flipped and self.act:
            act, self.act = self.act, None
            act(self.cluster)


def interrupted(tmp_path, act):
    clock = Interrupting()
    workspace = in_memory(tmp_path, cluster=MemoryCluster(clock))
    object.__setattr__(workspace, "clock", clock)
    two_releases(workspace)
    clock.cluster, clock.act = workspace.connection, act
    return workspace, AskedLoad(clock)


def test_a_drill_that_lost_its_lock_leaves_everything_to_the_run_that_has_it(tmp_path):
    def taken(cluster):
        cluster.release_lease("slipway-demo", ASKED.run)
        cluster.acquire_lease("slipway-demo", "run-10", 3600)
        cluster.changes.clear()

    workspace, load = interrupted(tmp_path, taken)

    with pytest.raises(ConflictError, match="lost the lease"):
        drilled(workspace, load)

    assert workspace.connection.changes == []
    assert (workspace.connection.lease_holder("slipway-demo").holder, load.abandoned) == ("run-10", True)


def unable_to_apply(times):
    """What makes the cluster refuse so many changes of objects."""

    def act(cluster):
        apply, left = cluster.apply, [times]

        def refusing(objects):
            if left[0]:
                left[0] -= 1
                raise UnavailableError("the cluster does not answer")
            apply(objects)

        cluster.apply = refusing

    return act


def test_a_cluster_that_refuses_a_change_is_asked_again_for_the_live_release(tmp_path):
    workspace, load = interrupted(tmp_path, unable_to_apply(2))

    told = drilled(workspace, load)

    assert (told.data["verdict"], report_of(told).problem) == ("failed", "the cluster does not answer")
    assert standing(workspace.connection)["services"] == {"demo": SECOND}


def test_a_live_release_that_cannot_be_put_back_is_an_error_that_the_next_attempt_mends(tmp_path):
    workspace, load = interrupted(tmp_path, unable_to_apply(3))

    with pytest.raises(UnavailableError):
        drilled(workspace, load)
    assert standing(workspace.connection)["services"] == {"demo": FIRST}
    assert standing(workspace.connection)["leases"] == []
    again(workspace)

    assert standing(workspace.connection)["services"] == {"demo": SECOND}
