"""What a cluster promises, asked of the one in memory and of one that speaks the real protocol.

A module that collects these tests gives the fixtures `cluster`, `misled`, which shows the same cluster to a client whose
clock is two hours ahead, and `until`, which waits for a condition.
"""

import pytest

from slipway.tasks.adapters.kube.event_object import MoveEvent
from slipway.tasks.adapters.kube.key_secret import KeySecret
from slipway.tasks.contracts.api_keys import ApiKey, sha256_of_key
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.serving.rendered import exposure, scaling
from tests.fakes.documents.rollouts import version
from tests.fakes.workspace import site
from tests.support.paths import REPOSITORY

TEMPLATES = REPOSITORY / "k8s_manifests" / "serving"
LABELS = {"slipway.dev/model": "demo", "slipway.dev/release": "demo-1"}


def service(cluster, name="demo", release="demo-1"):
    ports = [{"name": "http", "port": 8000, "targetPort": "http"}, {"name": "grpc", "port": 8001, "targetPort": "grpc"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": cluster.namespace, "labels": {"slipway.dev/model": "demo"}},
        "spec": {"selector": {"slipway.dev/model": "demo", "slipway.dev/release": release}, "ports": ports},
    }


def test_an_object_that_was_applied_is_found_by_name_and_by_label(cluster):
    cluster.apply([service(cluster), service(cluster, "demo-candidate")])

    found = cluster.find("Service", {"slipway.dev/model": "demo"})

    assert {item["metadata"]["name"] for item in found} == {"demo", "demo-candidate"}
    assert cluster.get("Service", "demo")["spec"]["selector"]["slipway.dev/release"] == "demo-1"
    assert cluster.find("Service", {"slipway.dev/model": "other"}) == []


def test_applying_again_changes_what_differs_and_keeps_the_address(cluster):
    cluster.apply([service(cluster)])
    before = cluster.service_address("demo")

    cluster.apply([service(cluster, release="demo-2")])

    assert cluster.get("Service", "demo")["spec"]["selector"]["slipway.dev/release"] == "demo-2"
    assert cluster.service_address("demo").host == before.host


def test_keys_of_clients_are_changed_without_losing_those_that_another_client_adds(cluster):
    stored, moment = KeySecret(cluster, "keys-of-clients"), "2026-11-27T12:00:00Z"
    first, second, third = (ApiKey(name, sha256_of_key(name), moment) for name in ("first", "second", "third"))
    stored.add(first)

    def overtaken(key):
        if key.name == "first" and len(stored.keys()) == 1:
            KeySecret(cluster, "keys-of-clients").add(second)
        return key.name == "first"

    assert stored.remove(overtaken) == [first]
    stored.add(third)

    assert stored.keys() == [second, third]


class Early:
    """A cluster as somebody saw it once, before `meanwhile` happened."""

    def __init__(self, cluster, meanwhile):
        self._cluster, self._meanwhile = cluster, [meanwhile]

    def get(self, kind, name):
        before = self._cluster.get(kind, name)
        while self._meanwhile:
            self._meanwhile.pop()()
        return before

    def __getattr__(self, name):
        return getattr(self._cluster, name)


def test_two_who_create_the_first_key_at_once_lose_none(cluster):
    first, second = (ApiKey(name, sha256_of_key(name), "2026-11-27T12:00:00Z") for name in ("first", "second"))
    stored = KeySecret(cluster, "first-keys")

    KeySecret(Early(cluster, lambda: stored.add(first)), "first-keys").add(second)

    assert stored.keys() == [first, second]


def never_scheduled(cluster):
    pod = {
        "containers": [{"name": "server", "image": "server:1"}],
        "nodeSelector": {"slipway.dev/test": "no-such-node"},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "demo-1", "namespace": cluster.namespace, "labels": LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def test_scaling_a_workload_changes_its_replicas_and_nothing_else(cluster):
    cluster.apply([never_scheduled(cluster)])
    before = cluster.get("Deployment", "demo-1")["spec"]

    cluster.scale("Deployment", "demo-1", 3)

    assert cluster.get("Deployment", "demo-1")["spec"] == {**before, "replicas": 3}
    with pytest.raises(InputError, match="does not exist"):
        cluster.scale("Deployment", "nothing", 3)


def test_an_annotation_is_written_and_removed_together_with_the_replicas(cluster):
    cluster.apply([never_scheduled(cluster)])
    found = []

    for replicas, value in [(0, "3"), (3, None)]:
        cluster.scale("Deployment", "demo-1", replicas, {"slipway.dev/test": value})
        item = cluster.get("Deployment", "demo-1")
        found.append((item["spec"]["replicas"], (item["metadata"].get("annotations") or {}).get("slipway.dev/test")))

    assert found == [(0, "3"), (3, None)]


def test_a_scaler_gets_another_target_when_it_is_applied_again(cluster):
    made = version(1, serving={"replicas": {"max": 4}, "autoscale": {"metric": "request_rate", "target": 5}})
    for number in (1, 2):
        [scaler] = scaling.scaler(
            made.model_copy(update={"id": f"demo-{number}"}), site(serving={"scaler": {"kind": "hpa"}}), TEMPLATES
        )
        cluster.apply([scaler | {"metadata": scaler["metadata"] | {"namespace": cluster.namespace}}])

    found = cluster.get("HorizontalPodAutoscaler", "demo")

    assert found["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "demo-2"}
    assert cluster.delete("HorizontalPodAutoscaler", "demo") is True


def test_an_ingress_is_applied_found_and_deleted(cluster):
    places = site(serving={"routes": {"kind": "ingress", "host": "{name}.example.com"}})
    [ingress] = exposure.routes(ResolvedRelease(version(1, serving={"exposure": "ingress"}).spec, places), TEMPLATES)

    cluster.apply([ingress | {"metadata": ingress["metadata"] | {"namespace": cluster.namespace}}])

    assert cluster.get("Ingress", "demo")["spec"]["rules"][0]["host"] == "demo.example.com"
    assert cluster.delete("Ingress", "demo") is True


def test_what_is_absent_is_none_and_deleting_it_says_so(cluster):
    assert cluster.get("Deployment", "nothing") is None
    assert cluster.live_address("nothing") is None
    assert cluster.delete("Deployment", "nothing") is False


def test_what_is_deleted_is_gone(cluster):
    cluster.apply([service(cluster)])

    assert cluster.delete("Service", "demo") is True
    assert cluster.get("Service", "demo") is None


def test_a_service_answers_at_an_address_with_named_ports(cluster):
    cluster.apply([service(cluster)])

    found = cluster.live_address("demo")

    assert found.host
    assert (found.ports["http"], found.ports["grpc"]) == (8000, 8001)


def test_without_a_candidate_there_is_nothing_to_ask(cluster):
    with pytest.raises(InputError) as caught:
        cluster.candidate_address("demo")

    assert "demo-candidate" in caught.value.what


def test_a_lease_has_one_holder(cluster):
    assert cluster.acquire_lease("slipway-demo", "run-a", 60) is None

    other = cluster.acquire_lease("slipway-demo", "run-b", 60)

    assert other.holder == "run-a"
    assert cluster.lease_holder("slipway-demo").holder == "run-a"


def test_renewing_a_lease_keeps_the_moment_when_it_was_taken(cluster):
    cluster.acquire_lease("slipway-demo", "run-a", 60)
    before = cluster.lease_holder("slipway-demo")

    assert cluster.acquire_lease("slipway-demo", "run-a", 600) is None
    after = cluster.lease_holder("slipway-demo")

    assert after.since == before.since
    assert after.until > before.until


def test_a_lease_that_expired_is_taken_over(cluster):
    cluster.acquire_lease("slipway-demo", "run-a", 0)

    assert cluster.acquire_lease("slipway-demo", "run-b", 60) is None
    assert cluster.lease_holder("slipway-demo").holder == "run-b"


def test_a_clients_clock_that_is_wrong_neither_shortens_nor_lengthens_a_lease(cluster, misled):
    cluster.acquire_lease("slipway-demo", "run-a", 60)
    assert misled.acquire_lease("slipway-demo", "run-b", 60).holder == "run-a"

    cluster.release_lease("slipway-demo", "run-a")
    misled.acquire_lease("slipway-demo", "run-b", 0)
    assert cluster.acquire_lease("slipway-demo", "run-a", 60) is None


def test_a_lease_is_given_back_by_its_holder_alone(cluster):
    cluster.acquire_lease("slipway-demo", "run-a", 60)

    cluster.release_lease("slipway-demo", "run-b")
    assert cluster.lease_holder("slipway-demo").holder == "run-a"

    cluster.release_lease("slipway-demo", "run-a")
    assert cluster.lease_holder("slipway-demo") is None


def test_a_lease_whose_holder_has_ended_is_taken_over_at_once(cluster):
    cluster.acquire_lease("slipway-demo", "run-a", 60, dag_run="release__demo/run-a")
    ended = cluster.lease_holder("slipway-demo")

    assert ended.dag_run == "release__demo/run-a"
    assert cluster.acquire_lease("slipway-demo", "run-b", 60, ended_at=ended.version) is None
    assert cluster.lease_holder("slipway-demo").holder == "run-b"


def test_a_lease_that_was_renewed_since_its_holder_was_looked_up_is_not_taken_over(cluster):
    cluster.acquire_lease("slipway-demo", "run-a", 60)
    looked_up = cluster.lease_holder("slipway-demo")
    cluster.acquire_lease("slipway-demo", "run-a", 60)

    assert cluster.acquire_lease("slipway-demo", "run-b", 60, ended_at=looked_up.version).holder == "run-a"


def test_runs_of_two_dags_that_have_the_same_id_do_not_share_a_lease(cluster):
    cluster.acquire_lease("slipway-group.chat", "scheduled", 60, dag_run="release__one/scheduled")

    other = cluster.acquire_lease("slipway-group.chat", "scheduled", 60, dag_run="release__two/scheduled")
    cluster.release_lease("slipway-group.chat", "scheduled", dag_run="release__two/scheduled")

    assert other.dag_run == "release__one/scheduled"
    assert cluster.lease_holder("slipway-group.chat").dag_run == "release__one/scheduled"


def test_what_is_told_of_a_workload_is_kept_once_for_each_run(cluster):
    cluster.apply([never_scheduled(cluster)])

    for run in ("run-1", "run-1", "run-2"):
        cluster.tell([("Deployment", "absent"), ("Deployment", "demo-1")], MoveEvent("Promoted", "it is live", run))
    cluster.tell([("Deployment", "absent")], MoveEvent("Promoted", "nobody is told", "run-1"))

    assert sorted(told(cluster)) == [("demo-1", "Promoted", "run-1"), ("demo-1", "Promoted", "run-2")]


def told(cluster):
    """Workload, reason and run of each of our Events."""
    if hasattr(cluster, "told"):
        return cluster.told
    items = [item for item in cluster.find("Event", {}) if item["source"].get("component") == "slipway"]
    return [(item["involvedObject"]["name"], item["reason"], item["reportingInstance"]) for item in items]
