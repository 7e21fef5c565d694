"""One model of a shared server is released; the others answer from where they were until the new server holds them."""

import pytest

from slipway.tasks.contracts.errors import ConflictError, UnavailableError
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.serving.rendered import groups
from slipway.tasks.steps import promote, revert, roll_back, roll_out
from tests.fakes.documents.rollouts import channel, judged, published, released, version
from tests.fakes.kube.cluster import KilledError, in_memory, standing
from tests.support.refused import refused

CHAT = {"serving": {"group": "chat"}}


def server(*releases):
    return groups.server_name([groups.Member(release, "") for release in releases])


def rolled_out(workspace, number, name, verdict="passed", **changes):
    made = version(number, name=name, **{**CHAT, **changes})
    published(workspace, made)
    roll_out.run(made, workspace)
    judged(workspace, made, verdict)
    return made


@pytest.fixture
def pair(workspace):
    """Two models that one server holds, both live."""
    return released(workspace, 1, name="llama", **CHAT), released(workspace, 2, name="mistral", **CHAT)


def test_the_second_model_joins_the_server_and_the_first_one_moves_with_it(cluster, pair):
    llama, mistral = pair

    assert standing(cluster) == {
        "deployments": [server(llama, mistral)],
        "services": {"llama": llama.id, "mistral": mistral.id},
        "leases": [],
    }


def test_a_candidate_stands_beside_the_server_with_the_other_models_live_release_in_it(workspace, cluster, pair):
    llama, mistral = pair

    new = rolled_out(workspace, 3, "llama")

    assert standing(cluster) == {
        "deployments": sorted([server(llama, mistral), server(new, mistral)]),
        "services": {"llama": llama.id, "llama-candidate": new.id, "mistral": mistral.id},
        "leases": ["slipway-llama", "slipway-group.chat"],
    }


def test_a_promotion_moves_one_model_and_leaves_one_server(workspace, cluster, pair):
    _, mistral = pair
    new = rolled_out(workspace, 3, "llama")
    cluster.changes.clear()

    promote.run(new, workspace)

    assert standing(cluster) == {
        "deployments": [server(new, mistral)],
        "services": {"llama": new.id, "mistral": mistral.id},
        "leases": [],
    }
    assert not [change for change in cluster.changes if "Service mistral" in change]
    assert channel(workspace, "mistral").live.release_id == mistral.id


def test_the_old_server_goes_only_when_the_new_one_answers_for_every_model(workspace, cluster, pair):
    llama, mistral = pair
    new = rolled_out(workspace, 3, "llama")
    endpoints = cluster.endpoints
    cluster.endpoints = lambda service: {f"{server(llama, mistral)}-0"} if service == "mistral" else endpoints(service)

    with pytest.raises(UnavailableError) as caught:
        promote.run(new, workspace)

    assert f"does not reach {new.id} alone" in caught.value.what
    assert server(llama, mistral) in standing(cluster)["deployments"]
    assert channel(workspace, "llama").live.release_id == llama.id


def test_a_refused_candidate_takes_its_server_along_and_no_other(workspace, cluster, pair):
    llama, mistral = pair
    before = standing(cluster)
    new = rolled_out(workspace, 3, "llama", "failed")

    roll_back.run(new, workspace)

    assert standing(cluster) == before
    assert channel(workspace, "llama").live.release_id == llama.id
    assert channel(workspace, "mistral").live.release_id == mistral.id


def test_a_second_model_of_the_group_waits_until_the_first_one_is_released(workspace, cluster, pair):
    new, sleep = rolled_out(workspace, 3, "llama"), workspace.clock.sleep
    workspace.clock.sleep = lambda seconds: (
        sleep(seconds),
        promote.run(new, workspace) if cluster.lease_holder("slipway-llama") else None,
    )
    other = version(4, name="mistral", **CHAT)

    roll_out.run(other, workspace)

    _, mistral = pair
    assert standing(cluster)["deployments"] == sorted([server(new, mistral), server(new, other)])
    assert standing(cluster)["services"]["mistral-candidate"] == other.id


def test_a_group_that_does_not_get_free_is_given_up_and_the_run_holds_nothing(workspace, cluster, pair):
    cluster.acquire_lease("slipway-group.chat", "run-3", 7200)

    with pytest.raises(UnavailableError) as caught:
        roll_out.run(version(4, name="mistral", **CHAT), workspace)

    assert caught.value.what == "a release of group chat is in progress after 1800 s of waiting"
    assert caught.value.found.startswith("run run-3,")
    assert standing(cluster)["leases"] == ["slipway-group.chat"]


def test_nobody_waits_to_go_back(workspace, cluster, pair):
    released(workspace, 3, name="llama", **CHAT)
    cluster.acquire_lease("slipway-group.chat", "run-8", 7200)

    with pytest.raises(ConflictError) as caught:
        revert.run(RevertRequest(name="llama", run="run-9", reason="drill"), workspace)

    assert caught.value.what == "a release of group chat is in progress"
    assert caught.value.found.startswith("run run-8,")
    assert standing(cluster)["leases"] == ["slipway-group.chat"]


def test_two_releases_of_one_model_of_a_group_do_not_wait_for_each_other(workspace, pair):
    rolled_out(workspace, 3, "llama")

    with pytest.raises(ConflictError) as caught:
        roll_out.run(version(4, name="llama", **CHAT), workspace)

    assert caught.value.what == "a release of llama is in progress"


def test_models_of_another_group_and_without_one_stay_as_they_are(workspace, cluster, pair):
    llama, mistral = pair
    alone = released(workspace, 5, name="alone")
    search = released(workspace, 6, name="finder", serving={"group": "search"})

    new = released(workspace, 7, name="llama", **CHAT)

    assert standing(cluster)["deployments"] == sorted([alone.id, server(search), server(new, mistral)])
    assert llama.id not in standing(cluster)["services"].values()


def test_a_model_goes_back_with_the_others_as_they_are_now(workspace, cluster, pair):
    llama, _ = pair
    released(workspace, 3, name="llama", **CHAT)
    mistral = released(workspace, 4, name="mistral", **CHAT)

    revert.run(RevertRequest(name="llama", run="run-9", reason="drill"), workspace)

    assert standing(cluster) == {
        "deployments": [server(llama, mistral)],
        "services": {"llama": llama.id, "mistral": mistral.id},
        "leases": [],
    }


def test_a_model_that_had_its_own_server_joins_and_keeps_that_one_warm(workspace, cluster, pair):
    llama, mistral = pair
    own = released(workspace, 5, name="other")

    joined = released(workspace, 6, name="other", **CHAT)

    assert standing(cluster)["deployments"] == sorted([own.id, server(llama, mistral, joined)])
    assert standing(cluster)["services"]["other"] == joined.id


def test_a_model_that_leaves_is_gone_from_the_server_with_the_next_release_of_another(workspace, cluster, pair):
    _, mistral = pair
    own = released(workspace, 5, name="llama")
    assert standing(cluster)["services"] == {"llama": own.id, "mistral": mistral.id}

    new = released(workspace, 6, name="mistral", **CHAT)

    assert standing(cluster)["deployments"] == sorted([own.id, server(new)])


def test_members_that_cannot_share_a_server_are_refused_before_anything_changes(workspace, cluster, pair):
    before = standing(cluster)

    with refused(what="one pod with one image"):
        roll_out.run(version(5, name="other", serving={"group": "chat", "image": "another:1"}), workspace)

    assert standing(cluster)["deployments"] == before["deployments"]


def killed_and_repeated(folder, number, moment):
    """The world after a promotion in a group that was killed at a change, and was run again; whether it was killed."""
    workspace = in_memory(folder)
    released(workspace, 1, name="llama", **CHAT)
    released(workspace, 2, name="mistral", **CHAT)
    new = rolled_out(workspace, 3, "llama")
    workspace.connection.changes.clear()
    workspace.connection.dies_at = None if number is None else (number, moment)
    try:
        promote.run(new, workspace)
    except KilledError:
        promote.run(new, workspace)
        return True, workspace
    return False, workspace


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_promotion_killed_anywhere_ends_where_it_would_have_ended(tmp_path, moment):
    _, whole = killed_and_repeated(tmp_path / "whole", None, moment)
    number, killed = 0, True
    while killed:
        killed, workspace = killed_and_repeated(tmp_path / str(number), number, moment)
        assert standing(workspace.connection) == standing(whole.connection)
        assert channel(workspace, "llama").live == channel(whole, "llama").live
        number += 1
    assert number > 5
