"""What a refused candidate leaves behind: a line in the channel, and nothing else."""

import pytest

from slipway.tasks.contracts.stored.release import Failure
from slipway.tasks.rollout.act import server_target
from slipway.tasks.steps import promote, roll_back, roll_out
from tests.fakes.documents.rollouts import channel, judged, released, reported, version
from tests.fakes.kube.cluster import standing


def test_a_refused_candidate_goes_and_the_live_release_stays_untouched(workspace, cluster):
    live = released(workspace, 1)
    roll_out.run(version(2), workspace)
    judged(workspace, version(2), "failed")
    cluster.changes.clear()

    told = roll_back.run(version(2), workspace)

    assert standing(cluster) == {"deployments": [live.id], "services": {"demo": live.id}, "leases": []}
    assert not [change for change in cluster.changes if change.endswith("Service demo")]
    assert told.data["removed"] == [f"server {version(2).id}", "Service demo-candidate"]
    assert told.summary.startswith(f"{live.id} stays live")


def test_the_refusal_and_its_reason_are_remembered_once(workspace):
    roll_out.run(version(1), workspace)
    judged(workspace, version(1), "failed")

    for _ in range(2):
        roll_back.run(version(1), workspace)

    history = channel(workspace).history
    assert [(event.event, event.run, event.reason) for event in history] == [
        ("refused", "run-1", "failed: 1 expectation")
    ]
    assert channel(workspace).live is None


def test_the_reason_is_the_first_step_that_failed(workspace):
    error = Failure(kind="UnavailableError", exit_code=75, message="demo-candidate does not answer")
    roll_out.run(version(1), workspace)
    reported(workspace, version(1), "smoke-test", error=error)

    assert roll_back.run(version(1), workspace).data["reason"] == "smoke-test: demo-candidate does not answer"


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [("passed", "its gate passed, but it was not approved or not promoted"), (None, "it never reached its gate")],
)
def test_a_run_that_nobody_refused_has_a_reason_as_well(workspace, verdict, reason):
    roll_out.run(version(1), workspace)
    if verdict:
        judged(workspace, version(1), verdict)

    assert roll_back.run(version(1), workspace).data["reason"] == reason


def test_a_result_that_cannot_be_read_does_not_keep_a_refused_candidate(workspace, cluster):
    roll_out.run(version(1), workspace)
    workspace.store.put_bytes(workspace.layout.result("demo", version(1).id, "smoke-test"), b"{")
    judged(workspace, version(1), "failed")

    told = roll_back.run(version(1), workspace)

    assert told.data["reason"] == "failed: 1 expectation"
    assert standing(cluster) == {"deployments": [], "services": {}, "leases": []}


def test_what_another_run_reported_of_the_release_is_no_reason(workspace):
    judged(workspace, version(1, run="run-of-last-week"), "failed")
    roll_out.run(version(1), workspace)

    assert roll_back.run(version(1), workspace).data["reason"] == "it never reached its gate"


def test_when_nothing_was_rolled_out_it_says_so(workspace, cluster):
    told = roll_back.run(version(1), workspace)

    assert "nothing of demo-000000000001 was rolled out" in told.summary
    assert (told.data["removed"], standing(cluster)["deployments"]) == ([], [])


def test_what_another_run_holds_is_not_touched(workspace, cluster):
    roll_out.run(version(2), workspace)
    before = standing(cluster)

    told = roll_back.run(version(1), workspace)

    assert "nothing to roll back: a release of demo is in progress: found run run-2" in told.summary
    assert (standing(cluster), channel(workspace)) == (before, None)


def test_the_live_release_is_never_removed(workspace, cluster):
    made = released(workspace, 1)

    told = roll_back.run(made, workspace)

    assert (told.data["removed"], standing(cluster)["services"]) == ([], {"demo": made.id})
    assert [event.event for event in channel(workspace).history] == ["promoted"]


def test_a_release_that_was_live_before_stays_warm_when_it_is_refused_as_a_candidate(workspace, cluster):
    for number in (1, 2):
        released(workspace, number)
    again = version(1, run="run-3")
    roll_out.run(again, workspace)
    judged(workspace, again, "failed")

    told = roll_back.run(again, workspace)

    assert told.data["removed"] == ["Service demo-candidate"]
    assert standing(cluster)["deployments"] == [version(1).id, version(2).id]


def test_the_model_is_free_for_the_next_run(workspace):
    roll_out.run(version(1), workspace)
    roll_back.run(version(1), workspace)

    roll_out.run(version(2), workspace)
    judged(workspace, version(2))
    promote.run(version(2), workspace)

    assert channel(workspace).live.release_id == version(2).id


def test_a_release_leaves_the_live_service_before_its_pods_end(workspace, cluster):
    """Endpoints follow a Service a moment later, as on a real cluster."""
    live = released(workspace, 1)
    roll_out.run(version(2), workspace)
    cluster.apply(
        server_target.service(version(2), "", workspace.site, workspace.manifests / "serving", candidate=False)
    )
    shown, looks = cluster.endpoints, []

    def late(service):
        looks.append(set(cluster.objects))
        return {f"{version(2).id}-0"} if len(looks) < 8 else shown(service)

    cluster.endpoints = late
    roll_back.run(version(2), workspace)

    assert ("Deployment", version(2).id) in looks[7]
    assert standing(cluster)["deployments"] == [live.id]
