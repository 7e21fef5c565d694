"""A canary over a cluster in memory: weights in the route, verdicts from what both releases served, and kills."""

import dataclasses

import pytest
from pydantic import ValidationError

from slipway.tasks.adapters.kube.kube_errors import StaleError
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.measured.canary import CanaryRecord
from slipway.tasks.rollout.act.canary_routes import STATE, CanaryRoutes
from slipway.tasks.rollout.decide.canary import Phase, State
from slipway.tasks.steps import promote, roll_back, roll_out
from tests.fakes.documents.rollouts import channel, check_by_plan, judged, published, released, version
from tests.fakes.kube.cluster import KilledError, in_memory, standing
from tests.fakes.releases import spec
from tests.fakes.traffic import MemoryTraffic, shares
from tests.support.refused import refused

HOSTS = {"host": "{name}.example.com", "grpc_host": "{name}-grpc.example.com"}
GATEWAY = {"routes": {"kind": "gateway", "gateway": {"name": "models"}, **HOSTS}}
EXPOSED = {"serving": {"exposure": "ingress"}}
CANARY = {**EXPOSED, "rollout": {"strategy": "canary", "steps": [5, 25, 50], "bake_s": 20}}


def canary(**rollout):
    return {**EXPOSED, "rollout": {**CANARY["rollout"], **rollout}}


def world(folder, asked=CANARY, **traffic):
    """A live release, and a candidate that passed its gate."""
    workspace = in_memory(folder, serving=GATEWAY)
    live = released(workspace, 1, **EXPOSED)
    made = version(2, **asked)
    published(workspace, made)
    roll_out.run(made, workspace)
    judged(workspace, made)
    cluster = workspace.connection
    cluster.changes.clear()
    return dataclasses.replace(workspace, served=MemoryTraffic(cluster, made.id, **traffic)), live, made


def weights(workspace):
    """What each look saw, once."""
    return list(dict.fromkeys(workspace.served.weights))


def route(workspace, kind="HTTPRoute"):
    return workspace.connection.get(kind, "demo")


def test_a_good_canary_is_promoted_step_by_step(tmp_path):
    workspace, live, made = world(tmp_path)

    told = promote.run(made, workspace)

    assert weights(workspace) == [5, 25, 50]
    assert standing(workspace.connection)["services"] == {"demo": made.id}
    assert (channel(workspace).live.release_id, told.data["was"]) == (made.id, live.id)
    assert [shares(route(workspace, kind)) for kind in ("HTTPRoute", "GRPCRoute")] == [(0, None), (0, None)]
    steps = [reason for _, reason, _ in workspace.connection.told if reason.startswith("Canary")]
    assert steps == ["CanaryStep1", "CanaryStep2", "CanaryStep3"]


def test_a_canary_that_slows_down_is_rolled_back_at_the_step_where_it_does(tmp_path):
    workspace, live, made = world(tmp_path, slow_from=25)

    with refused(what="was failed at step 2 of 3 (25 % of the requests)", found="request 500 ms, live 100 ms, 5.00 x"):
        promote.run(made, workspace)
    assert shares(route(workspace)) == (0, None)
    assert channel(workspace).live.release_id == live.id
    roll_back.run(made, workspace)

    assert weights(workspace) == [5, 25]
    assert standing(workspace.connection) == {"deployments": [live.id], "services": {"demo": live.id}, "leases": []}


def test_people_can_read_how_far_a_canary_is_and_every_verdict_on_it(tmp_path):
    workspace, live, made = world(tmp_path, canary(mirror=10), slow_from=25)

    with refused(what="was failed at step 2 of 3"):
        promote.run(made, workspace)

    record = CanaryRecord.model_validate_json(workspace.evidence(made).read("canary.json"))
    assert (record.candidate, record.live, record.phase, record.percent, record.steps) == (
        made.id,
        live.id,
        "rolled-back",
        0,
        (5, 25, 50),
    )
    assert [(look.percent, look.mirror, look.verdict) for look in record.looks] == [
        (0, 10, "passed"),
        (5, None, "passed"),
        (25, None, "failed"),
    ]
    assert "request 500 ms, live 100 ms" in " ".join(record.looks[-1].why)


def test_errors_end_a_step_before_its_time(tmp_path):
    workspace, _, made = world(tmp_path, canary(bake_s=3600), failing_from=5)
    began = workspace.clock.monotonic()

    with refused(found="50.00% of "):
        promote.run(made, workspace)

    assert workspace.clock.monotonic() - began < 60


@pytest.mark.parametrize("needed", [8, 9])
def test_clients_who_ask_beside_a_probe_are_counted_and_the_probe_is_not(tmp_path, needed):
    limits = {"min_requests": needed, "blind_looks": 0}
    workspace, _, made = world(tmp_path, canary(steps=[50], bake_s=20, canary=limits), beside_probes=2)

    if needed == 8:  # of four looks
        promote.run(made, workspace)
        assert channel(workspace).live.release_id == made.id
    else:
        with refused(found="too few requests: 8 requests, live 8"):
            promote.run(made, workspace)


def test_what_came_beside_a_probe_that_live_rejected_is_left_out(tmp_path):
    limits = {"min_requests": 8, "blind_looks": 0}
    workspace, _, made = world(tmp_path, canary(steps=[50], bake_s=20, canary=limits), beside_probes=2)
    workspace.served.rejecting = {"demo"}

    with refused(found="too few requests: 8 requests, live 0"):
        promote.run(made, workspace)


def test_a_canary_without_data_holds_its_weight_and_is_then_rolled_back(tmp_path):
    workspace, live, made = world(tmp_path, canary(canary={"blind_looks": 1}), blind=True)

    with refused(what="was inconclusive at step 1 of 3 (5 % of the requests), 2 times in a row", found="too few"):
        promote.run(made, workspace)

    assert shares(route(workspace)) == (0, None)
    assert channel(workspace).live.release_id == live.id


def test_a_mirror_comes_first_and_takes_no_client_to_the_candidate(tmp_path):
    workspace, _, made = world(tmp_path, canary(mirror=10))

    promote.run(made, workspace)

    assert weights(workspace) == [0, 5, 25, 50]
    assert list(dict.fromkeys(workspace.served.mirrored)) == [10, None]


def test_a_canary_that_is_slow_for_mirrored_requests_gets_no_client(tmp_path):
    workspace, _, made = world(tmp_path, canary(mirror=10), slow_from=1)

    with refused(what="was failed at a mirror of 10 % of the live requests"):
        promote.run(made, workspace)

    assert weights(workspace) == [0]


@pytest.mark.parametrize(
    ("silent", "problem"), [({"demo-candidate"}, "does not answer the probe"), ({"demo", "demo-candidate"}, None)]
)
def test_a_candidate_that_does_not_answer_fails_unless_nothing_answers(tmp_path, silent, problem):
    workspace, _, made = world(tmp_path)
    workspace.served.silent = silent

    if problem:
        with refused(found=problem):
            promote.run(made, workspace)
    else:
        promote.run(made, workspace)


def test_a_candidate_whose_pods_are_gone_is_rolled_back(tmp_path):
    workspace, _, made = world(tmp_path)
    sleep, cluster = workspace.clock.sleep, workspace.connection
    workspace.clock.sleep = lambda seconds: (cluster.unavailable.add(made.id), sleep(seconds))

    with refused(found="the candidate became unavailable"):
        promote.run(made, workspace)


def test_weights_that_no_gateway_takes_up_are_waited_for_and_nothing_is_judged(tmp_path):
    workspace, _, made = world(tmp_path)
    workspace.connection.gateway = False

    with pytest.raises(UnavailableError) as caught:
        promote.run(made, workspace)

    assert caught.value.what.startswith("no Gateway took up the weights of demo")
    assert weights(workspace) == []


def test_the_first_release_of_a_model_has_nothing_to_be_compared_with(tmp_path):
    workspace = in_memory(tmp_path, serving=GATEWAY)
    made = released(workspace, 1, **CANARY)

    assert standing(workspace.connection)["services"] == {"demo": made.id}


def test_weights_are_written_only_over_the_route_that_was_read(tmp_path):
    workspace, live, made = world(tmp_path)
    cluster, get = workspace.connection, workspace.connection.get
    routes = CanaryRoutes(made, live, "run-2", workspace.site, workspace.manifests / "serving", cluster)

    def overtaken(kind, name):
        found, cluster.get = get(kind, name), get
        found["metadata"].pop("resourceVersion")
        cluster.apply([{**found, "metadata": {**found["metadata"], "annotations": {"team": "a"}}}])
        return {**found, "metadata": {**found["metadata"], "resourceVersion": "1"}}

    cluster.get = overtaken
    with pytest.raises(StaleError):
        routes.write(State(Phase.SHIFTING))

    assert route(workspace)["metadata"]["annotations"] == {"team": "a"}


@pytest.mark.parametrize("slow_from", [101, 25])
def test_a_kill_at_any_change_costs_nothing_but_time(tmp_path, slow_from):
    asked = canary(mirror=10, steps=[25], bake_s=5)
    workspace, _, made = world(tmp_path, asked, slow_from=slow_from)
    _act(made, workspace)
    changes, wanted = len(workspace.connection.changes), _ended(workspace)
    assert changes >= 8
    for number in range(changes):
        for moment in ("before", "after"):
            workspace, _, made = world(tmp_path, asked, slow_from=slow_from)
            workspace.connection.dies_at = (number, moment)
            with pytest.raises(KilledError):
                _act(made, workspace)
            seen = len(workspace.served.weights)

            _act(made, workspace)

            assert _ended(workspace) == wanted, f"killed {moment} change {number}"
            again = workspace.served.weights[seen:]
            assert again == sorted(again), "the second promote started over"


def test_a_canary_beside_a_release_without_a_route_is_refused_by_plan_and_by_promote(tmp_path):
    workspace = in_memory(tmp_path, serving=GATEWAY)
    released(workspace, 1)
    made = version(2, **CANARY)

    with refused(what="shares the requests of a route", found="serving.exposure cluster", remedy="blue-green"):
        check_by_plan(made.spec, workspace)
    roll_out.run(made, workspace)
    judged(workspace, made)
    with refused(what="shares the requests of a route"):
        promote.run(made, workspace)


def test_a_canary_where_the_site_has_ingresses_is_refused_before_anything_is_deployed(tmp_path):
    workspace = in_memory(tmp_path, serving={"routes": {"kind": "ingress", **HOSTS}})

    with refused(what="rollout.strategy canary shifts the weights of an HTTPRoute", expected="kind gateway"):
        roll_out.run(version(1, **CANARY), workspace)

    assert workspace.connection.changes == ["lease slipway-demo to run-1"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rollout": CANARY["rollout"]}, "serving.exposure cluster makes none"),
        (canary(bake_s=0), "a canary needs bake_s"),
        (canary(steps=[]), r"increasing percentages such as \[5, 25, 50\], found \[\]"),
        (canary(steps=[25, 5]), r"found \[25, 5\]"),
        (canary(steps=[5, 100]), "less than or equal to 99"),
        (canary(mirror=101), "less than or equal to 100"),
        ({"rollout": {"mirror": 10}}, "mirror belongs to strategy canary"),
        ({"rollout": {"canary": {}}}, "canary belongs to strategy canary"),
        ({"rollout": {"steps": [10]}}, "steps belongs to strategy canary"),
        ({**CANARY, "serving": {"exposure": "ingress", "group": "chat"}}, "group chat shares one"),
    ],
)
def test_a_spec_whose_canary_cannot_be_run_is_refused(changes, problem):
    with pytest.raises(ValidationError, match=problem):
        spec(**changes)


def _act(made, workspace):
    """What a run does: promote, or else roll back."""
    try:
        promote.run(made, workspace)
    except InputError:
        roll_back.run(made, workspace)


def _ended(workspace):
    found = route(workspace)["metadata"]["annotations"]
    return standing(workspace.connection), channel(workspace).live.release_id, shares(route(workspace)), STATE in found
