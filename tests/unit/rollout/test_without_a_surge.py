"""`rollout.surge: none`: a candidate runs on GPUs of the live release, which gets them back unless it is replaced."""

import pytest

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.fit.surge import Shares, shares
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.rollout.act.revert import restore
from slipway.tasks.rollout.act.revert import revert as put_back
from slipway.tasks.serving.rendered import manifests
from slipway.tasks.steps import benchmark, promote, revert, roll_back, roll_out
from tests.fakes.documents.rollouts import channel, check_by_plan, judged, published, released, version
from tests.fakes.kube.cluster import KilledError, in_memory, standing
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused

HPA = {"scaler": {"kind": "hpa"}}
SURGE = {"rollout": {"surge": "none"}}


def of(replicas, **changes):
    return {"serving": {"replicas": {"min": replicas, "max": replicas}}, **SURGE, **changes}


def scaled(least, most=8):
    autoscale = {"metric": "request_rate", "target": 5}
    return {"serving": {"replicas": {"min": least, "max": most}, "autoscale": autoscale}, **SURGE}


def on_gpus(ranks, replicas=1):
    engine = {**SPEC["engine"], "kind": "vllm", "gpu": "NVIDIA-A10G", "tensor_parallel": ranks}
    return spec(engine=engine, quantization={"format": "none"}, **of(replicas))


@pytest.fixture
def workspace(tmp_path):
    return in_memory(tmp_path, serving=HPA)


@pytest.fixture
def cluster(workspace):
    return workspace.connection


def replicas(cluster):
    """Replicas of each workload, marked where a workload should have more."""
    found = {}
    for (kind, name), item in cluster.objects.items():
        if kind == "Deployment":
            mark = item["metadata"]["annotations"].get("slipway.dev/full-replicas")
            found[name] = (item["spec"]["replicas"], mark)
    return found


def scaler(cluster):
    found = cluster.get("HorizontalPodAutoscaler", "demo")
    return found and found["spec"]["scaleTargetRef"]["name"]


def rolled_out(workspace, number, **changes):
    made = version(number, **changes)
    published(workspace, made)
    roll_out.run(made, workspace)
    return made


@pytest.mark.parametrize(
    ("live", "count", "candidate", "expected"),
    [
        (on_gpus(1), 1, on_gpus(1), Shares(0, 1)),
        (on_gpus(1), 2, on_gpus(1, 2), Shares(1, 1)),
        (on_gpus(1), 4, on_gpus(1, 4), Shares(1, 3)),
        (on_gpus(1), 4, on_gpus(1, 2), Shares(1, 2)),
        (on_gpus(1), 2, on_gpus(2), Shares(0, 1)),
        (on_gpus(2), 2, on_gpus(1, 8), Shares(1, 2)),
        (on_gpus(2), 1, on_gpus(1, 8), Shares(0, 2)),
    ],
)
def test_the_live_release_keeps_one_replica_if_the_rest_of_its_gpus_hold_a_candidate(live, count, candidate, expected):
    assert shares(live, count, candidate) == expected


def test_the_only_replica_is_stopped_before_the_candidate_starts_and_comes_back_after_a_refusal(workspace, cluster):
    live = released(workspace, 1, **of(1))
    cluster.changes.clear()

    made = rolled_out(workspace, 2, **of(1))
    stopped = replicas(cluster)
    order = [change for change in cluster.changes if "Deployment" in change]
    judged(workspace, made, "failed")
    roll_back.run(made, workspace)

    assert stopped == {live.id: (0, "1"), made.id: (1, "1")}
    assert order[1:] == [f"scale Deployment {live.id} to 0", f"apply Deployment {made.id}"]
    assert replicas(cluster) == {live.id: (1, None)}
    assert standing(cluster) == {"deployments": [live.id], "services": {"demo": live.id}, "leases": []}


def test_of_several_replicas_one_goes_on_and_a_promoted_candidate_gets_the_room_of_all(workspace, cluster):
    live = released(workspace, 1, **of(3))

    made = rolled_out(workspace, 2, **of(3))
    meanwhile = replicas(cluster)
    judged(workspace, made)
    promote.run(made, workspace)

    assert meanwhile == {live.id: (1, "3"), made.id: (2, "3")}
    assert replicas(cluster) == {made.id: (3, None)}
    assert [entry.release_id for entry in channel(workspace).previous] == [live.id]


def test_warm_releases_go_before_the_live_one_is_touched(workspace, cluster):
    full = {"serving": {"replicas": {"min": 2, "max": 2}}}
    warm, live = (released(workspace, number, **full) for number in (1, 2))
    cluster.changes.clear()

    rolled_out(workspace, 3, **of(2))

    changes = [change for change in cluster.changes if "Deployment" in change]
    assert changes[0] == f"delete Deployment {warm.id}"
    assert changes[-2:] == [f"scale Deployment {live.id} to 1", f"apply Deployment {version(3).id}"]


def test_the_scaler_leaves_a_live_release_alone_that_made_room(workspace, cluster):
    live = released(workspace, 1, **scaled(1))
    cluster.scale("Deployment", live.id, 4)
    cluster.wait_available("Deployment", live.id, 1)
    cluster.changes.clear()

    made = rolled_out(workspace, 2, **scaled(1))
    while_shared = scaler(cluster), replicas(cluster)
    gone, shrunk = "delete HorizontalPodAutoscaler demo", f"scale Deployment {live.id} to 1"
    order = [change for change in cluster.changes if change in {gone, shrunk}]
    judged(workspace, made, "failed")
    roll_back.run(made, workspace)

    assert order == [gone, shrunk]
    assert while_shared == (None, {live.id: (1, "4"), made.id: (3, "4")})
    assert (scaler(cluster), replicas(cluster)) == (live.id, {live.id: (4, None)})


def test_a_promoted_release_is_scaled_once_it_has_the_room_to_itself(workspace, cluster):
    released(workspace, 1, **scaled(2))

    made = released(workspace, 2, **scaled(2))

    assert (scaler(cluster), replicas(cluster)) == (made.id, {made.id: (2, None)})


def test_a_roll_out_waits_for_pods_that_still_end_and_says_which(workspace, cluster):
    live = released(workspace, 1, **of(1))
    labels = {**manifests.OWN_LABELS, manifests.NAME_LABEL: "demo", manifests.RELEASE_LABEL: live.id}
    cluster.objects["Pod", "stuck"] = {"metadata": {"name": "stuck", "labels": labels}, "status": {"phase": "Running"}}
    made = version(2, **of(1))

    with refused(UnavailableError, what=f"no room for {made.id}", found=f"{live.id} (1 of its pods)"):
        roll_out.run(made, workspace)
    assert ("Deployment", made.id) not in cluster.objects
    cluster.objects["Pod", "stuck"]["status"]["phase"] = "Succeeded"
    roll_out.run(made, workspace)

    assert replicas(cluster) == {live.id: (0, "1"), made.id: (1, "1")}


def test_the_next_run_finds_what_a_lost_run_took(workspace, cluster):
    live = released(workspace, 1, **of(2))
    lost = rolled_out(workspace, 2, **of(2))
    del cluster.objects["Lease", "slipway-demo"]

    made = rolled_out(workspace, 3, **of(2))

    assert lost.id not in replicas(cluster)
    assert replicas(cluster) == {live.id: (1, "2"), made.id: (1, "2")}


def test_a_next_run_with_a_surge_gives_back_what_a_lost_run_took(workspace, cluster):
    live = released(workspace, 1, **of(2))
    rolled_out(workspace, 2, **of(2))
    del cluster.objects["Lease", "slipway-demo"]

    made = rolled_out(workspace, 3)

    assert replicas(cluster) == {live.id: (2, None), made.id: (1, None)}


def test_what_a_lost_run_took_is_given_back_by_restoring_the_live_release(workspace, cluster):
    live = released(workspace, 1, **of(1))
    rolled_out(workspace, 2, **of(1))
    del cluster.objects["Lease", "slipway-demo"]

    restore("demo", workspace, run="run-9")

    assert replicas(cluster) == {live.id: (1, None)}


def test_a_rollback_needs_no_more_room_than_a_release(workspace, cluster):
    first, second = (released(workspace, number, **of(1)) for number in (1, 2))
    cluster.changes.clear()

    revert.run(RevertRequest(name="demo", run="run-9", reason="it repeats itself"), workspace)

    order = [change for change in cluster.changes if "Deployment" in change]
    assert order[1:3] == [f"scale Deployment {second.id} to 0", f"apply Deployment {first.id}"]
    assert replicas(cluster) == {first.id: (1, None)}
    assert channel(workspace).live.release_id == first.id


def test_a_rollback_whose_target_cannot_start_leaves_the_live_release_as_it_was(workspace, cluster):
    first, second = (released(workspace, number, **of(2)) for number in (1, 2))
    cluster.failing[first.id] = InputError("its repository is gone")
    cluster.unavailable.add(first.id)

    with refused(what="its repository is gone"):
        put_back("demo", workspace, run="run-9", reason="drill")

    assert replicas(cluster) == {second.id: (2, None)}
    assert standing(cluster)["services"] == {"demo": second.id}
    assert standing(cluster)["leases"] == []


def test_a_rollback_from_a_release_that_cannot_be_read_does_not_need_its_spec(tmp_path):
    workspace = in_memory(tmp_path)
    first, second = (released(workspace, number, **of(1)) for number in (1, 2))
    workspace.store.put_bytes(workspace.layout.release("demo", second.id), b"damaged")

    put_back("demo", workspace, run="run-9", reason="drill")

    assert channel(workspace).live.release_id == first.id
    assert replicas(workspace.connection)[first.id] == (1, None)


def test_the_pods_of_a_release_are_replaced_without_one_more(workspace, cluster):
    made = released(workspace, 1, **of(2))

    strategy = cluster.get("Deployment", made.id)["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize(("surge", "targets"), [("none", ["candidate"]), ("full", ["candidate", "live"])])
def test_a_live_release_that_made_room_is_not_measured(workspace, cluster, surge, targets):
    released(workspace, 1)

    made = rolled_out(workspace, 2, rollout={"surge": surge})

    assert list(benchmark.targets_of(made, cluster)) == targets


def test_events_say_what_happened_to_the_live_release(workspace, cluster):
    live = released(workspace, 1, **of(1))
    made = rolled_out(workspace, 2, **of(1))
    judged(workspace, made, "failed")

    roll_back.run(made, workspace)

    told = [reason for name, reason, _ in cluster.told if name == live.id]
    assert told[-2:] == ["MadeRoom", "ReplicasRestored"]


STEPS = {"roll-out": roll_out, "promote": promote, "roll-back": roll_back}


def world(folder, step, count):
    """A live release, and a second one as far as `step` needs it."""
    workspace = in_memory(folder, serving=HPA)
    released(workspace, 1, **scaled(count))
    made = version(2, **scaled(count))
    published(workspace, made)
    if step is not roll_out:
        roll_out.run(made, workspace)
        judged(workspace, made, "passed" if step is promote else "failed")
    workspace.connection.changes.clear()
    return workspace, made


def ended(workspace):
    return standing(workspace.connection), replicas(workspace.connection), scaler(workspace.connection)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_kill_anywhere_costs_only_time_and_never_more_than_the_room(step, count, tmp_path):
    workspace, made = world(tmp_path, step, count)
    step.run(made, workspace)
    changes, wanted = len(workspace.connection.changes), ended(workspace)
    for number in range(changes):
        for moment in ("before", "after"):
            workspace, made = world(tmp_path, step, count)
            workspace.connection.dies_at = (number, moment)
            with pytest.raises(KilledError):
                step.run(made, workspace)
            assert sum(each for each, _ in replicas(workspace.connection).values()) <= count

            step.run(made, workspace)

            assert ended(workspace) == wanted, f"killed {moment} change {number}"


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("step", [roll_out, promote], ids=["roll-out", "promote"])
def test_a_roll_back_after_a_kill_anywhere_leaves_one_whole_release(step, count, tmp_path):
    workspace, made = world(tmp_path, step, count)
    step.run(made, workspace)
    for number in range(len(workspace.connection.changes)):
        workspace, made = world(tmp_path, step, count)
        workspace.connection.dies_at = (number, "after")
        with pytest.raises(KilledError):
            step.run(made, workspace)

        roll_back.run(made, workspace)

        live = channel(workspace).live.release_id
        found = replicas(workspace.connection)
        assert found == {live: (count, None)}, f"killed after change {number}"
        assert standing(workspace.connection)["services"] == {"demo": live}
        assert scaler(workspace.connection) == live


def test_a_live_release_with_other_gpus_or_a_shared_server_is_refused_by_plan(tmp_path):
    workspace = in_memory(tmp_path)
    live = released(workspace, 1)

    with refused(found="no GPU", expected="NVIDIA-A10G", remedy="rollout.surge full"):
        check_by_plan(on_gpus(1), workspace)
    shared = live.model_copy(
        update={
            "spec": live.spec.model_copy(update={"serving": live.spec.serving.model_copy(update={"group": "chat"})})
        }
    )
    published(workspace, shared)
    with refused(found="group chat", remedy="Release it once with rollout.surge full"):
        check_by_plan(spec(**of(1)), workspace)
