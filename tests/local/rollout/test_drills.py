"""A drill of real manifests in the embedded cluster, under its own load and that of clients."""

import pytest

from tasks.contracts.drill import DrillReport, DrillRequest
from tasks.contracts.measurement import unpacked
from tasks.contracts.rollout_spec import DrillSettings
from tasks.steps import drill
from tests.fakes import rollouts
from tests.fakes.releases import SPEC
from tests.fakes.rollouts import channel

SETTINGS = DrillSettings(request_rate=10.0, seconds=5)
ASKED = DrillRequest(name="demo", run="run-9", settings=SETTINGS)
GATE = {"gate": {**SPEC["gate"], "smoke": [{"prompt": "1", "answer": "1"}]}}


def serving(image):
    return {"serving": {"image": f"test/triton:{image}", "ready_timeout_s": 20}, **GATE}


def released(workspace, number, image="good"):
    return rollouts.released(workspace, number, **serving(image))


def names(cluster, kind):
    return {item["metadata"]["name"] for item in cluster.find(kind, {"slipway.dev/model": "demo"})}


def served_by(answers):
    return [answer.rsplit("-", 2)[0] for answer in answers]


@pytest.mark.timeout(120)
def test_a_drill_reaches_both_releases_and_loses_no_request(workspace, cluster, asking):
    first, second = (released(workspace, number) for number in (1, 2))
    before = channel(workspace)

    with asking(cluster.live_address("demo")) as client:
        told = drill.run(ASKED, workspace)
        answered = len(client.answers)
        client.after(50)

    report = DrillReport.model_validate(told.data["report"])
    assert (report.verdict, report.failed, client.failures) == ("passed", 0, []), told.summary
    assert set(served_by(client.answers)) == {first.id, second.id}
    assert set(served_by(client.answers[answered + client.at_once :])) == {second.id}
    assert [flip.to for flip in report.flips] == [first.id, second.id]
    assert [phase.phase for phase in report.phases if phase.requests > 10] == ["before", "during", "after"]
    rows = unpacked(workspace.store.read_bytes(report.requests_uri))
    assert len(rows) == report.requests
    assert channel(workspace) == before
    assert names(cluster, "Deployment") == {first.id, second.id}
