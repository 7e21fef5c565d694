"""A drill of real manifests in the embedded cluster, under its own load and that of clients.

What may happen to a drill is in tests/unit/rollout/test_drilling.py.
"""

from concurrent.futures import ThreadPoolExecutor

import grpc
from tritonclient.grpc import service_pb2_grpc

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.steady_load import SteadyLoad
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.measured.drill import DrillReport, DrillRequest
from slipway.tasks.contracts.measured.measurement import unpacked
from slipway.tasks.contracts.spec.rollout import DrillSettings
from slipway.tasks.steps import drill
from tests.fakes.documents import rollouts
from tests.fakes.documents.rollouts import channel
from tests.fakes.releases import SPEC
from tests.local.rollout import stand_in
from tests.support.waiting import until

SETTINGS = DrillSettings(request_rate=10.0, seconds=8)
ASKED = DrillRequest(name="demo", run="run-9", settings=SETTINGS)
GATE = {"gate": {**SPEC["gate"], "smoke": [{"prompt": "1", "answer": "1"}]}}


def released(workspace, number):
    return rollouts.released(workspace, number, serving={"image": "test/triton:good", "ready_timeout_s": 90}, **GATE)


def names(cluster, kind):
    return {item["metadata"]["name"] for item in cluster.find(kind, {"slipway.dev/model": "demo"})}


def served_by(answers):
    return [answer.rsplit("-", 2)[0] for answer in answers]


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
    assert [phase.phase for phase in report.phases if phase.requests] == ["before", "during", "after"]
    rows = unpacked(workspace.store.read_bytes(report.requests_uri))
    assert len(rows) == report.requests
    assert channel(workspace) == before
    assert names(cluster, "Deployment") == {first.id, second.id}


class Peers(stand_in.Grpc):
    """The stand-in's gRPC service, which remembers who was connected."""

    def __init__(self):
        self.peers = []

    def ModelStreamInfer(self, requests, context):  # noqa: N802 - the service's own name
        self.peers.append(context.peer())
        yield from super().ModelStreamInfer(requests, context)


def test_every_request_of_the_load_has_a_connection_of_its_own(monkeypatch):
    monkeypatch.setattr(stand_in, "POD", "a-pod")  # what it answers
    server, peers = grpc.server(ThreadPoolExecutor(32)), Peers()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(peers, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    # two pieces take 0.2 s, so that requests overlap
    load = SteadyLoad("demo", 50.0, [GenerateRequest("2", 32)], 30.0, SystemClock())
    load.start(ServiceAddress("127.0.0.1", {"http": port, "grpc": port}))
    until(lambda: len(peers.peers) > 20)

    rows = load.stop()
    server.stop(grace=None).wait()

    assert all(row.ok for row in rows), [row.error for row in rows]
    assert len(set(peers.peers)) == len(rows)
