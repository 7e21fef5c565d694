"""Roll-out, promotion and roll-back of real manifests in the embedded cluster, while a client asks."""

import pytest

from slipway.tasks.contracts.errors import ConflictError, InputError, UnavailableError
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.steps import promote, revert, roll_back, roll_out
from tests.fakes.documents import rollouts
from tests.fakes.documents.rollouts import channel, judged
from tests.support.refused import refused

NEVER_READY = {"unready", "storeless"}


def version(number, image="good"):
    serving = {"image": f"test/triton:{image}", "ready_timeout_s": 30 if image in NEVER_READY else 90}
    return rollouts.version(number, serving=serving)


def released(workspace, number):
    return rollouts.released(workspace, number, serving={"image": "test/triton:good", "ready_timeout_s": 90})


def served_by(answers):
    """Releases whose pods gave these answers."""
    return {answer.rsplit("-", 2)[0] for answer in answers}


def names(cluster, kind):
    return {item["metadata"]["name"] for item in cluster.find(kind, {"slipway.dev/model": "demo"})}


def generations(cluster):
    found = {name: cluster.get("Deployment", name) for name in names(cluster, "Deployment")}
    return {name: item["metadata"]["generation"] for name, item in found.items()}


def test_a_promotion_and_a_refusal_lose_no_request(workspace, cluster, asking):
    first = released(workspace, 1)
    with asking(cluster.live_address("demo")) as client:
        client.after(50)
        second = version(2)
        roll_out.run(second, workspace)
        client.after(50)
        assert served_by(client.answers) == {first.id}

        judged(workspace, second)
        promote.run(second, workspace)
        answered = len(client.answers)
        client.after(50)
        assert served_by(client.answers[answered + client.at_once :]) == {second.id}

        third = version(3)
        roll_out.run(third, workspace)
        judged(workspace, third, "failed")
        roll_back.run(third, workspace)
        client.after(50)

    assert client.failures == []
    assert channel(workspace).live.release_id == second.id
    assert (names(cluster, "Deployment"), names(cluster, "Service")) == ({first.id, second.id}, {"demo"})


def test_going_back_to_the_release_before_loses_no_request(workspace, cluster, asking):
    first = released(workspace, 1)
    second = released(workspace, 2)
    with asking(cluster.live_address("demo")) as client:
        client.after(50)
        assert served_by(client.answers) == {second.id}

        revert.run(RevertRequest(name="demo", run="run-9", reason="drill"), workspace)
        answered = len(client.answers)
        client.after(50)

    assert client.failures == []
    assert served_by(client.answers[answered + client.at_once :]) == {first.id}
    assert names(cluster, "Deployment") == {first.id}


def test_a_second_run_of_a_step_changes_nothing_and_a_candidate_answers_beside_the_live_release(
    workspace, cluster, asking
):
    first = released(workspace, 1)
    before = generations(cluster)
    promote.run(first, workspace)
    assert (generations(cluster), len(channel(workspace).history)) == (before, 1)
    second = version(2)

    told = roll_out.run(second, workspace).data

    with asking(cluster.candidate_address("demo")) as candidate, asking(cluster.live_address("demo")) as live:
        candidate.after(10)
        live.after(10)
    assert served_by(candidate.answers) == {second.id}
    assert served_by(live.answers) == {first.id}
    assert told["service"] == "demo-candidate"


@pytest.mark.parametrize(
    ("image", "kind", "reasons"),
    [
        ("crashing", InputError, ["CrashLoopBackOff", "failed to load all models"]),
        ("damaged", InputError, ["fetch-repository", "config.pbtxt is not what the manifest says"]),
        ("missing", InputError, ["cannot start", "ErrImagePull", "NotFound"]),
        ("unready", UnavailableError, ["not available after", "waiting for requests"]),
        ("storeless", UnavailableError, ["not available after", "the object store does not answer"]),
    ],
)
def test_a_candidate_that_cannot_start_says_why_and_is_rolled_back(workspace, cluster, image, kind, reasons):
    made = version(1, image)

    with pytest.raises(kind) as caught:
        roll_out.run(made, workspace)
    roll_back.run(made, workspace)

    assert all(reason in str(caught.value) for reason in reasons), str(caught.value)
    assert (names(cluster, "Deployment"), names(cluster, "Service")) == (set(), set())
    assert channel(workspace).history[0].event == "refused"


def test_a_release_of_a_model_that_another_run_is_releasing_is_refused(workspace, cluster):
    cluster.acquire_lease("slipway-demo", "run-of-somebody", 60)

    with refused(ConflictError, found="run-of-somebody"):
        roll_out.run(version(1), workspace)

    assert names(cluster, "Deployment") == set()
