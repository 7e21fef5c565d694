"""What `kubectl describe` tells of a release: one Event for each thing that happened to it."""

import json
from datetime import UTC, datetime

import pytest

from slipway.tasks.adapters.kube.event_object import MESSAGE_CHARS, MoveEvent, event_about
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.rollout.act.revert import revert
from slipway.tasks.steps import promote, roll_back, roll_out
from tests.fakes.documents.rollouts import judged, released, version
from tests.support.kubernetes_schemas import validate
from tests.unit.manifests.objects import named

NOW = datetime(2026, 3, 4, tzinfo=UTC)
WORKLOAD = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "demo-1", "namespace": "slipway-serving", "uid": "u-1"},
}


def story(cluster, release_id):
    return [reason for name, reason, _ in cluster.told if name == release_id]


def test_a_release_that_is_promoted_and_retired_tells_all_of_it(workspace, cluster):
    first = released(workspace, 1, rollout={"keep": 1})
    released(workspace, 2, rollout={"keep": 1})

    assert story(cluster, first.id) == [
        "CandidateDeployed",
        "CandidateReady",
        "GatePassed",
        "Promoted",
        "Replaced",
        "Retired",
    ]


def test_a_release_that_stays_warm_tells_which_one_is_live_instead(workspace, cluster):
    first, second = released(workspace, 1), released(workspace, 2)
    revert("demo", workspace, run="revert-1", reason="wrong answers")

    assert story(cluster, first.id)[-3:] == ["Promoted", "Replaced", "LiveAgain"]
    assert story(cluster, second.id)[-2:] == ["Replaced", "Retired"]


def test_a_refused_candidate_tells_why_before_it_is_gone(workspace, cluster):
    released(workspace, 1)
    made = version(2)
    roll_out.run(made, workspace)
    judged(workspace, made, "failed")

    roll_back.run(made, workspace)

    assert story(cluster, made.id) == ["CandidateDeployed", "CandidateReady", "RolledBack", "Retired"]


def test_a_roll_out_that_fails_tells_so_beside_its_candidate(workspace, cluster):
    made = version(1)
    cluster.unavailable.add(made.id)
    cluster.failing[made.id] = UnavailableError(f"{made.id} is not available")

    with pytest.raises(UnavailableError):
        roll_out.run(made, workspace)

    assert story(cluster, made.id) == ["CandidateDeployed", "RollOutFailed"]


def test_a_roll_out_that_fails_before_anything_is_deployed_tells_so_beside_the_live_service_or_else_the_lease(
    workspace, cluster
):
    def failed(made):
        with pytest.raises(UnavailableError):
            roll_out.run(made, workspace)
        return cluster.told[-1]

    cluster.apply = refuse_workloads(cluster.apply)
    assert failed(version(1)) == ("slipway-demo", "RollOutFailed", "run-1")
    del cluster.apply
    roll_back.run(version(1), workspace)
    released(workspace, 2)
    cluster.apply = refuse_workloads(cluster.apply)

    assert failed(version(3)) == ("demo", "RollOutFailed", "run-3")


def refuse_workloads(apply):
    def applied(objects):
        if any(item["kind"] == "Deployment" for item in objects):
            raise UnavailableError("the webhook does not answer")
        apply(objects)

    return applied


def test_a_candidate_that_is_rolled_back_is_told_of_beside_the_live_service_which_stays(workspace, cluster):
    released(workspace, 1)
    made = version(2)
    roll_out.run(made, workspace)
    judged(workspace, made, "failed")

    roll_back.run(made, workspace)

    assert [told for told in cluster.told if told[1] == "RolledBack"] == [
        (made.id, "RolledBack", "run-2"),
        ("demo", "RolledBack", "run-2"),
    ]


def test_a_previous_release_that_a_person_puts_back_is_live_again(workspace, cluster):
    first = released(workspace, 1)
    released(workspace, 2)

    revert("demo", workspace, run="revert-1", reason="wrong answers")

    assert story(cluster, first.id)[-1] == "LiveAgain"


def test_a_step_that_is_run_again_tells_nothing_twice(workspace, cluster):
    made = version(1)
    roll_out.run(made, workspace)
    judged(workspace, made)
    promote.run(made, workspace)
    before = list(cluster.told)

    promote.run(made, workspace)

    assert cluster.told == before


class RefusingApi(Cluster):
    """A cluster that has the workload and takes no Event."""

    def __init__(self, error):
        self.namespace, self.error = "slipway-serving", error

    def get(self, kind, name):
        raise self.error


def test_an_event_that_cannot_be_written_fails_nothing(caplog):
    cluster = RefusingApi(UnavailableError("the cluster does not answer"))

    cluster.tell([("Deployment", "demo-1")], MoveEvent("Promoted", "live", "run-1"))

    assert "no event Promoted about demo-1: the cluster does not answer" in caplog.text


def test_an_event_follows_the_schema_and_hides_tokens():
    event = event_about(WORKLOAD, MoveEvent("Promoted", "by hf_" + "a1" * 10 + "x" * 2000, "run-1"), NOW)

    validate(event)
    assert "hf_" not in json.dumps(event)
    assert len(event["message"]) <= MESSAGE_CHARS
    assert event["involvedObject"]["namespace"] == event["metadata"]["namespace"]


@pytest.mark.parametrize(
    ("changes", "same"),
    [({}, True), ({"run": "run-2"}, False), ({"reason": "Retired"}, False), ({"message": "m"}, True)],
)
def test_the_name_of_an_event_follows_from_what_happened_in_which_run(changes, same):
    first = {"reason": "Promoted", "message": "live", "run": "run-1"}
    one, other = (event_about(WORKLOAD, MoveEvent(**fields), NOW) for fields in (first, {**first, **changes}))

    assert (one["metadata"]["name"] == other["metadata"]["name"]) is same


def test_the_deployer_may_create_events_and_nothing_else_of_them():
    rules = [rule for rule in named("Role", "slipway-deployer")["rules"] if "events" in rule["resources"]]

    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "create"}
