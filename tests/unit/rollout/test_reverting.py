"""Back to the release before, long after another one was promoted."""

from dataclasses import replace

import pytest

from slipway.tasks.contracts.errors import ConflictError, InputError, UnavailableError
from slipway.tasks.contracts.site.authentication import Authentication
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.serving.rendered.manifests import keys_secret
from slipway.tasks.steps import revert, roll_back, roll_out
from tests.fakes.documents.rollouts import channel, published, released, version
from tests.fakes.kube.cluster import in_memory, standing

ASKED = RevertRequest(name="demo", run="run-9", reason="it repeats itself")


def test_the_release_before_takes_the_traffic_and_the_channel_says_why(workspace, cluster):
    first, second = (released(workspace, number) for number in (1, 2))

    told = revert.run(ASKED, workspace)

    assert standing(cluster)["services"] == {"demo": first.id}
    found = channel(workspace)
    assert (found.live.release_id, found.previous) == (first.id, ())
    assert (found.history[0].event, found.history[0].release_id, found.history[0].reason) == (
        "rolled-back",
        second.id,
        "it repeats itself",
    )
    assert (told.data["release"], told.data["was"]) == (first.id, second.id)


def test_a_release_that_is_still_warm_is_not_deployed_again(workspace, cluster):
    first, _ = (released(workspace, number) for number in (1, 2))
    cluster.changes.clear()

    revert.run(ASKED, workspace)

    assert f"apply Deployment {first.id}" not in cluster.changes


@pytest.mark.parametrize("spec", [{}, {"serving": {"group": "chat"}}], ids=["alone", "in a group"])
def test_a_warm_release_from_before_the_site_asked_for_keys_asks_for_them_before_it_takes_traffic(
    workspace, cluster, spec
):
    released(workspace, 1, **spec)
    serving = workspace.site.serving.model_copy(update={"authentication": Authentication()})
    locked = replace(workspace, site=workspace.site.model_copy(update={"serving": serving}))
    released(locked, 2, **spec)
    cluster.changes.clear()

    revert.run(ASKED, locked)

    servers = cluster.find("Deployment", {})
    assert [keys_secret(server) for server in servers] == ["slipway-api-keys"] * len(servers)
    deployed, pointed = [change.split()[1] for change in cluster.changes if change.startswith("apply")]
    assert (deployed, pointed) == ("Deployment", "Service")


def test_a_release_that_is_gone_is_deployed_again_and_waited_for_before_traffic(workspace, cluster):
    first, _ = (released(workspace, number) for number in (1, 2))
    cluster.delete("Deployment", first.id)
    cluster.changes.clear()

    revert.run(ASKED, workspace)

    moved = [change for change in cluster.changes if change.startswith("apply")]
    assert moved == [f"apply Deployment {first.id}", "apply Service demo"]


def test_a_release_that_does_not_come_up_again_takes_no_traffic_and_frees_the_model(workspace, cluster):
    first, second = (released(workspace, number) for number in (1, 2))
    cluster.delete("Deployment", first.id)
    cluster.unavailable.add(first.id)
    cluster.failing[first.id] = UnavailableError("not available after 600 s")

    with pytest.raises(UnavailableError):
        revert.run(ASKED, workspace)

    assert (standing(cluster)["services"], standing(cluster)["leases"]) == ({"demo": second.id}, [])
    assert channel(workspace).live.release_id == second.id


def test_running_it_again_in_the_same_run_goes_back_no_further(workspace):
    for number in (1, 2, 3):
        released(workspace, number, rollout={"keep": 3})

    told = [revert.run(ASKED, workspace).data for _ in range(2)]

    assert channel(workspace).live.release_id == version(2).id
    assert [data["was"] for data in told] == [version(3).id, version(3).id]


@pytest.mark.parametrize(
    "serving",
    [
        {},
        {"scaler": {"kind": "hpa"}},
        {"routes": {"kind": "gateway", "gateway": {"name": "g", "namespace": "i"}, "host": "{name}.models.example"}},
    ],
)
def test_a_live_release_that_cannot_be_read_stops_neither_the_way_back_nor_the_next_one(tmp_path, serving):
    workspace = in_memory(tmp_path, serving=serving)
    for number in (1, 2):
        released(workspace, number)
    workspace.store.put_bytes(workspace.layout.release("demo", version(2).id), b"{}")

    published(workspace, version(3))
    roll_out.run(version(3), workspace)
    roll_back.run(version(3), workspace)
    revert.run(ASKED, workspace)

    assert standing(workspace.connection)["services"] == {"demo": version(1).id}
    assert channel(workspace).live.release_id == version(1).id


def test_a_rollback_that_was_interrupted_after_the_swap_and_is_repeated_goes_back_no_further(
    workspace, cluster, monkeypatch
):
    for number in (1, 2, 3):
        released(workspace, number, rollout={"keep": 3})

    def away(kind, name):
        if kind != "Lease":
            raise UnavailableError("the cluster does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(cluster, "delete", away)
        with pytest.raises(UnavailableError):
            revert.run(ASKED, workspace)
    revert.run(ASKED, workspace)

    assert channel(workspace).live.release_id == version(2).id
    assert standing(cluster)["services"] == {"demo": version(2).id}


def test_another_run_goes_back_one_more(workspace):
    for number in (1, 2, 3):
        released(workspace, number, rollout={"keep": 3})

    revert.run(ASKED, workspace)
    revert.run(ASKED.model_copy(update={"run": "run-10"}), workspace)

    assert channel(workspace).live.release_id == version(1).id


def test_a_release_named_takes_the_traffic_and_those_after_it_are_forgotten(workspace, cluster):
    oldest, *_ = (released(workspace, number, rollout={"keep": 3}) for number in (1, 2, 3))

    told = revert.run(ASKED.model_copy(update={"to": oldest.id}), workspace)

    found = channel(workspace)
    assert (found.live.release_id, found.previous) == (oldest.id, ())
    assert standing(cluster)["services"] == {"demo": oldest.id}
    assert (told.data["release"], told.data["was"]) == (oldest.id, version(3).id)


def test_a_named_release_is_reached_once_however_often_the_run_is_repeated(workspace):
    for number in (1, 2, 3):
        released(workspace, number, rollout={"keep": 3})
    asked = ASKED.model_copy(update={"to": version(2).id})

    told = [revert.run(asked, workspace).data for _ in range(2)]

    assert [data["was"] for data in told] == [version(3).id, version(3).id]
    assert [entry.release_id for entry in channel(workspace).previous] == [version(1).id]


def test_a_release_that_is_no_previous_one_is_refused_with_those_that_are(workspace):
    for number in (1, 2):
        released(workspace, number)

    with pytest.raises(InputError) as caught:
        revert.run(ASKED.model_copy(update={"to": version(2).id}), workspace)

    assert caught.value.found == f"previous releases {version(1).id}"
    assert caught.value.remedy.endswith("It is live.")


@pytest.mark.parametrize(("releases", "found"), [(0, "no live release"), (1, f"only {version(1).id}, which is live")])
def test_without_a_release_before_there_is_no_way_back(workspace, releases, found):
    for number in range(releases):
        released(workspace, number + 1)

    with pytest.raises(InputError) as caught:
        revert.run(ASKED, workspace)

    assert caught.value.found == found


def test_while_a_release_is_in_progress_there_is_no_way_back(workspace):
    for number in (1, 2):
        released(workspace, number)
    roll_out.run(version(3), workspace)

    with pytest.raises(ConflictError) as caught:
        revert.run(ASKED, workspace)

    assert caught.value.found.startswith("run run-3,")


def test_a_candidate_that_a_dead_run_left_goes_with_its_service(workspace, cluster):
    first, _ = (released(workspace, number) for number in (1, 2))
    roll_out.run(version(3, run=ASKED.run), workspace)

    revert.run(ASKED, workspace)

    assert standing(cluster) == {"deployments": [first.id], "services": {"demo": first.id}, "leases": []}
    removed = [change for change in cluster.changes if change.startswith("delete")]
    assert removed.index("delete Service demo-candidate") < removed.index(f"delete Deployment {version(3).id}")
