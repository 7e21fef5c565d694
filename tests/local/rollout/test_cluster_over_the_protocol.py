"""What every cluster promises, and what only one with pods, tokens and a socket can show."""

import base64
import logging
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes import config
from kubernetes.config import incluster_config

from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.kube_errors import StaleError, UnknownKindError
from slipway.tasks.adapters.kube.workload_state import is_available
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.site import StartBudget
from tests.fakes.clock import WrongClock
from tests.fakes.kube.cluster_contract import *  # noqa: F403 - its tests are collected here
from tests.fakes.kube.cluster_contract import LABELS, service
from tests.local.stand_in_cluster import LARGE_S
from tests.unit.manifests.objects import base_objects


@pytest.fixture
def misled(server, cluster, site):
    api = config.new_client_from_config(str(server.kubeconfig), context=site.kubernetes.context)
    return Cluster(api, cluster.namespace, WrongClock(timedelta(hours=2)))


def deployment(cluster, image="test/triton:good", **container):
    probe = {"httpGet": {"path": "/v2/models/demo/ready", "port": "http"}, "periodSeconds": 1, "timeoutSeconds": 30}
    flags = ["--http-address=$(POD_IP)", "--http-port=8000"]
    env = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    server = {
        "name": "triton",
        "image": image,
        "command": ["tritonserver", *flags],
        "env": env,
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": probe,
        **container,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "demo-1", "namespace": cluster.namespace, "labels": LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {"containers": [server], "terminationGracePeriodSeconds": 2},
            },
        },
    }


def test_a_deployment_is_available_when_its_pods_are_and_its_service_reaches_them(cluster):
    cluster.apply([deployment(cluster), service(cluster)])

    cluster.wait_available("Deployment", "demo-1", 90)

    assert is_available(cluster.get("Deployment", "demo-1"))
    assert cluster.endpoints("demo") == set(cluster.ready_pods(LABELS))
    assert len(cluster.endpoints("demo")) == 1


def test_a_pod_of_an_older_generation_neither_makes_a_deployment_available_nor_condemns_it(cluster):
    cluster.apply([deployment(cluster, "test/triton:crashing")])
    with pytest.raises(InputError) as caught:
        cluster.wait_available("Deployment", "demo-1", 90)
    assert "CrashLoopBackOff" in caught.value.what

    cluster.apply([deployment(cluster)])
    cluster.wait_available("Deployment", "demo-1", 90)
    good = cluster.ready_pods(LABELS)
    cluster.apply([deployment(cluster, "test/triton:unready")])

    assert cluster.ready_pods(LABELS) == good
    with pytest.raises(UnavailableError) as caught:
        cluster.wait_available("Deployment", "demo-1", 2)
    assert "triton running" in caught.value.found


def test_a_candidate_whose_secret_is_missing_is_given_up_long_before_its_time_with_the_command_that_creates_it(cluster):
    reference = {"name": "slipway-s3", "key": "AWS_ACCESS_KEY_ID"}
    missing = [{"name": "AWS_ACCESS_KEY_ID", "valueFrom": {"secretKeyRef": reference}}]
    cluster.apply([deployment(cluster, env=missing)])

    with pytest.raises(InputError) as caught:
        cluster.wait_available("Deployment", "demo-1", 600)

    assert 'CreateContainerConfigError: secret "slipway-s3" not found' in caught.value.what
    create = f"kubectl -n {cluster.namespace} create secret generic slipway-s3 --from-literal=AWS_ACCESS_KEY_ID=<value>"
    assert create in caught.value.remedy


def test_a_candidate_without_a_node_is_given_up_in_that_phase_with_the_schedulers_words(cluster, caplog):
    made = deployment(cluster)
    made["spec"]["template"]["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    cluster.apply([made])

    with caplog.at_level(logging.INFO), pytest.raises(UnavailableError) as caught:
        cluster.wait_available("Deployment", "demo-1", 1, StartBudget(schedule_min=0.1, pull_min=0.1))

    assert "s for a node, as long as budgets.cpu.schedule_min" in caught.value.what
    assert "FailedScheduling: 0/1 nodes are available" in caught.value.what
    assert "raise budgets.cpu.schedule_min" in caught.value.remedy
    assert any("demo-1: schedule 0 of 6 s" in record.getMessage() for record in caplog.records)
    assert any("6 s: pod pending: FailedScheduling" in record.getMessage() for record in caplog.records)


def test_pulling_takes_nothing_from_the_time_to_become_ready_and_has_a_limit_of_its_own(cluster):
    cluster.apply([deployment(cluster, "test/triton:large")])

    with pytest.raises(UnavailableError) as caught:
        cluster.wait_available("Deployment", "demo-1", 30, StartBudget(schedule_min=1, pull_min=0.05))
    assert "s for images and volumes, as long as budgets.cpu.pull_min" in caught.value.what
    assert 'Pulling: Pulling image "test/triton:large"' in caught.value.what

    cluster.wait_available("Deployment", "demo-1", LARGE_S - 1, StartBudget(schedule_min=1, pull_min=1))


def test_a_candidate_that_a_quota_refuses_is_given_up_with_the_quotas_words(cluster):
    hard = {"pods": "0"}
    cluster.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "none", "namespace": cluster.namespace},
                "spec": {"hard": hard},
            },
            deployment(cluster),
        ]
    )

    with pytest.raises(UnavailableError) as caught:
        cluster.wait_available("Deployment", "demo-1", 1, StartBudget(schedule_min=0.1, pull_min=0.1))

    assert "FailedCreate" in caught.value.what
    assert "exceeded quota: none" in caught.value.what


def test_a_deployment_that_does_not_exist_is_not_waited_for(cluster):
    with pytest.raises(InputError) as caught:
        cluster.wait_available("Deployment", "demo-9", 90)

    assert caught.value.what.endswith("demo-9 does not exist")


def test_an_object_that_the_cluster_refuses_names_object_and_field(cluster):
    wrong = service(cluster)
    wrong["spec"]["ports"] = []

    with pytest.raises(InputError) as caught:
        cluster.apply([wrong])

    assert f"Service {cluster.namespace}/demo" in caught.value.what
    assert "spec.ports" in caught.value.what
    assert caught.value.remedy.startswith("Correct the field")


def test_a_lease_that_somebody_renewed_meanwhile_is_not_deleted(cluster):
    cluster.acquire_lease("slipway-demo", "run-a", 60)
    stale = cluster.get("Lease", "slipway-demo")["metadata"]["resourceVersion"]
    cluster.acquire_lease("slipway-demo", "run-a", 90)

    with pytest.raises(StaleError) as caught:
        cluster.delete("Lease", "slipway-demo", version=stale)

    assert caught.value.remedy == "Run the step again."


def test_a_kind_that_the_cluster_does_not_know_is_named(cluster):
    with pytest.raises(UnknownKindError):
        cluster.apply([{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "Group", "metadata": {"name": "g"}}])


def test_the_cluster_takes_the_base_and_takes_it_again(cluster):
    for _ in range(2):
        cluster.apply(base_objects())


def changed(server, folder, change):
    document = yaml.safe_load(server.kubeconfig.read_text())
    change(document)
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_token_that_is_not_accepted_is_wrong_input(server, site, tmp_path):
    file = changed(server, tmp_path, lambda document: document["users"][0]["user"].update(token="wrong"))

    with pytest.raises(InputError) as caught:
        Cluster.connect(site, kubeconfig=file).get("Service", "demo")

    assert "does not allow" in caught.value.what


def test_a_cluster_that_does_not_answer_is_unavailable(server, site, tmp_path):
    file = changed(
        server, tmp_path, lambda document: document["clusters"][0]["cluster"].update(server="https://127.0.0.1:9")
    )

    with pytest.raises(UnavailableError) as caught:
        Cluster.connect(site, kubeconfig=file).get("Service", "demo")

    assert caught.value.remedy.startswith("Check that its API server is up")


def test_a_pod_is_let_in_by_its_service_account(server, site, tmp_path, monkeypatch):
    document = yaml.safe_load(server.kubeconfig.read_text())
    address = urlsplit(document["clusters"][0]["cluster"]["server"])
    secrets = {
        "SERVICE_TOKEN_FILENAME": document["users"][0]["user"]["token"].encode(),
        "SERVICE_CERT_FILENAME": base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"]),
    }
    for name, data in secrets.items():
        (tmp_path / name).write_bytes(data)
        monkeypatch.setattr(incluster_config, name, str(tmp_path / name))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address.hostname)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "no-kubeconfig"))

    assert Cluster.connect(site).get("Service", "demo") is None


def test_without_a_kubeconfig_and_outside_of_a_pod_there_is_no_way(site, tmp_path, monkeypatch):
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "no-kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(InputError) as caught:
        Cluster.connect(site)

    assert caught.value.remedy.startswith("Set KUBECONFIG")


def test_a_context_that_does_not_exist_is_named(server, site):
    elsewhere = site.model_copy(update={"kubernetes": site.kubernetes.model_copy(update={"context": "elsewhere"})})

    with pytest.raises(InputError) as caught:
        Cluster.connect(elsewhere, kubeconfig=server.kubeconfig)

    assert "elsewhere" in caught.value.what


def test_a_cluster_without_the_api_of_leader_worker_sets_has_none(cluster):
    assert cluster.find("LeaderWorkerSet", LABELS) == []
    assert cluster.get("LeaderWorkerSet", "demo-1") is None
    assert cluster.delete("LeaderWorkerSet", "demo-1") is False


def test_a_leader_worker_set_is_not_applied_without_its_api(cluster):
    wanted = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}

    with pytest.raises(UnknownKindError):
        cluster.apply([{**wanted, "metadata": {"name": "demo-1", "namespace": cluster.namespace}, "spec": {}}])
