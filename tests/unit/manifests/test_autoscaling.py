"""The scaler of a live release, and what records and serves its metric: valid, and talking of the same series."""

import json
import re
import shutil
import subprocess
from os.path import relpath

import pytest
import yaml
from pydantic import ValidationError

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS
from slipway.tasks.contracts.engine.scaling import SERIES
from slipway.tasks.contracts.fit.resolution import resolve
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.serving.rendered import manifests, scaling
from tests.contracts.recorded import check_object, contract
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.documents.rollouts import version
from tests.fakes.releases import SPEC, spec
from tests.fakes.workspace import site
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_all_yaml, load_yaml
from tests.unit.manifests.objects import MANIFESTS, listed, named

TEMPLATES, COMPONENT = MANIFESTS / "serving", MANIFESTS / "autoscaling"
SCALERS = {"hpa": {"kind": "hpa"}, "keda": {"kind": "keda", "prometheus": "http://prometheus.monitoring.svc:9090"}}
RECORDS = {
    "ScaledObject": "keda_scaledobject.json",
    "PodMonitor": "pod_monitor.json",
    "PrometheusRule": "prometheus_rule.json",
}


def serving(metric="request_rate", target=5.0, **changes):
    autoscale = {"metric": metric, "target": target, **changes}
    return {"replicas": {"min": 1, "max": 4}, "autoscale": autoscale}


def engine(kind, pipeline_parallel=1):
    gpu = {"gpu": "NVIDIA-A10G", "tensor_parallel": 4, "pipeline_parallel": pipeline_parallel}
    return {**SPEC["engine"], "kind": kind, **(gpu if ENGINE_KINDS[kind].on_gpu else {})}


def check(item):
    if item["kind"] in RECORDS:
        recorded = contract(RECORDS[item["kind"]])
        assert item["apiVersion"] == f"{recorded['group']}/{recorded['served']}"
        check_object(item, recorded["openAPIV3Schema"])
    else:
        validate(item)


def component():
    return {item["kind"]: item for item in (load_yaml(file.read_text()) for file in listed(COMPONENT))}


def rules():
    return component()["PrometheusRule"]["spec"]["groups"]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("tool", SCALERS)
def test_a_scaler_follows_its_schema(tool, nodes):
    made = version(
        1, quantization={"format": "none"}, engine=engine("trt-engine", nodes), serving=serving("waiting_requests")
    )

    [item] = scaling.scaler(made, gpu_site(serving={"scaler": SCALERS[tool]}), TEMPLATES)

    check(item)
    assert item["spec"]["scaleTargetRef"]["kind"] == ("Deployment" if nodes == 1 else "LeaderWorkerSet")


@pytest.mark.parametrize(("target", "quantity"), [(5.0, "5"), (0.8, "800m"), (1.5, "1500m"), (1e6, "1000000")])
def test_a_target_is_written_as_each_scaler_reads_it(target, quantity):
    made = version(1, serving=serving(target=target, stabilization_s=60))
    [hpa], [keda] = (scaling.scaler(made, site(serving={"scaler": SCALERS[tool]}), TEMPLATES) for tool in SCALERS)

    [metric], [trigger] = hpa["spec"]["metrics"], keda["spec"]["triggers"]
    assert metric["pods"]["target"] == {"type": "AverageValue", "averageValue": quantity}
    assert metric["pods"]["metric"] == {"name": "triton:request_rate:max"}
    assert float(trigger["metadata"]["threshold"]) == target
    assert trigger["metadata"]["query"] == (
        f'sum(triton:request_rate:max{{namespace="slipway-serving",pod=~"{made.id}-.+"}})'
    )
    assert hpa["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 60


@pytest.mark.parametrize("file", listed(COMPONENT), ids=lambda file: file.stem)
def test_every_object_of_the_component_follows_its_schema(file):
    item = load_yaml(file.read_text())

    check(item)
    assert file.name.startswith(f"{item['kind'].lower()}-")


def test_a_field_that_the_custom_resources_do_not_have_is_found():
    wrong = component()["PodMonitor"]
    wrong["spec"]["podMetricsEndpoints"][0]["prot"] = "metrics"

    with pytest.raises(Exception, match="'prot' was unexpected"):
        check(wrong)


def test_every_series_is_recorded_once_and_served_by_the_adapter():
    recorded = [rule["record"] for group in rules() for rule in group["rules"]]
    [rule] = load_yaml(component()["ConfigMap"]["data"]["config.yaml"])["rules"]
    served = re.compile(re.search(r'__name__=~"([^"]+)"', rule["seriesQuery"])[1])

    assert sorted(recorded) == sorted(SERIES.values())
    assert all(served.fullmatch(series) for series in recorded)


def test_the_monitor_scrapes_ports_that_serving_pods_have_and_keeps_what_tells_pods_apart():
    monitor = component()["PodMonitor"]["spec"]
    made = version(1, serving=serving("requests_in_flight"))
    pod = manifests.deployment(made, "s3://bucket/release.json", site(), TEMPLATES)[0]["spec"]["template"]

    containers = [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]
    ports = {port["name"] for container in containers for port in container.get("ports") or []}
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} <= ports
    assert set(monitor["podTargetLabels"]) <= pod["metadata"]["labels"].keys()


@pytest.mark.parametrize(
    ("pod_label", "triton_label", "expected"),
    [
        ("", "llama-2-7b", "llama-2-7b"),
        ("", "llama-2-7b_tensorrt_llm", "llama-2-7b"),
        ("demo", "demo", "demo"),
        ("demo", "demo_whole_answer", "demo"),
        ("", "", ""),
    ],
)
def test_a_series_of_a_group_has_the_label_of_its_model(pod_label, triton_label, expected):
    endpoints = component()["PodMonitor"]["spec"]["podMetricsEndpoints"]
    found = [each["metricRelabelings"] for each in endpoints if "metricRelabelings" in each]
    assert found == [found[0]] * 2
    [rule] = found[0]

    assert rule["sourceLabels"] == ["slipway_dev_model", "model"]
    matched = re.fullmatch(rule["regex"], f"{pod_label};{triton_label}")
    assert (matched[1] if matched else pod_label) == expected


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_front_counts_only_where_a_scaler_asks_for_it(nodes):
    def front_of(metric):
        made = version(1, quantization={"format": "none"}, engine=engine("trt-engine", nodes), serving=serving(metric))
        spec = manifests.deployment(made, "s3://bucket/release.json", gpu_site(), TEMPLATES)[0]["spec"]
        pod = spec["template"] if nodes == 1 else spec["leaderWorkerTemplate"]["leaderTemplate"]
        [front] = [each for each in pod["spec"]["initContainers"] if each["name"] == "front"]
        return {port["name"]: port["containerPort"] for port in front["ports"]}, json.loads(front["command"][-1])

    ports, config = front_of("requests_in_flight")
    others, plain = front_of("request_rate")

    assert (ports.pop("front-stats"), ports) == (8003, others)
    names = {name: {each["name"] for each in config["static_resources"][name]} for name in ("listeners", "clusters")}
    assert names == {"listeners": {"http", "grpc", "probes", "stats"}, "clusters": {"http", "openai", "grpc", "admin"}}
    [policy] = [rule["ports"] for rule in component()["NetworkPolicy"]["spec"]["ingress"]]
    assert policy == [{"protocol": "TCP", "port": 8003}]
    assert "admin" not in {each["name"] for each in plain["static_resources"]["clusters"]}


def test_an_overlay_takes_the_component_in(tmp_path):
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl on this machine")
    overlay = {"resources": [relpath(MANIFESTS / "base", tmp_path)], "components": [relpath(COMPONENT, tmp_path)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))

    done = subprocess.run([kubectl, "kustomize", str(tmp_path)], capture_output=True, text=True, check=True)

    kinds = [item["kind"] for item in load_all_yaml(done.stdout)]
    assert {"PodMonitor", "PrometheusRule"} <= set(kinds)


def test_the_rules_compute_what_they_say(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool on this machine")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": rules()}))
    cases = (REPOSITORY / "tests" / "fixtures" / "prometheus" / "autoscaling.yaml").read_text()
    (tmp_path / "cases.yaml").write_text(cases)

    done = subprocess.run(
        [promtool, "test", "rules", "cases.yaml"], check=False, cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_scaled_release_has_a_disruption_budget_although_it_starts_with_one_pod():
    made = version(1, serving=serving())

    kinds = [item["kind"] for item in manifests.deployment(made, "s3://b/r.json", site(), TEMPLATES)]

    assert kinds == ["Deployment", "PodDisruptionBudget"]


@pytest.mark.parametrize(
    "kind", [kind for kind, traits in ENGINE_KINDS.items() if "waiting_requests" not in traits.scaling_metrics]
)
@pytest.mark.parametrize("metric", ["queue_compute_ratio", "waiting_requests", "kv_cache_use"])
def test_a_metric_that_a_kind_does_not_export_is_refused_by_name(kind, metric):
    with pytest.raises(
        ValidationError,
        match=f"{metric} says nothing about the load of {kind}.* choose request_rate, requests_in_flight",
    ):
        spec(quantization={"format": "none"}, engine=engine(kind), serving=serving(metric, 0.5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replicas": {"min": 2, "max": 2}}, "replicas.max above replicas.min, found 2 for both"),
        ({"group": "chat"}, "group chat shares one"),
        ({"autoscale": {"metric": "kv_cache_use", "target": 80}}, "80 of the cache is never exceeded"),
        ({"autoscale": {"metric": "request_rate", "target": 0}}, "greater than or equal to 0.001"),
    ],
)
def test_what_no_scaler_can_do_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        spec(serving={**serving(), **changes})


def test_a_site_without_a_scaler_refuses_it():
    with refused(what="serving.autoscale asks for a scaler, and site test names none"):
        resolve(spec(serving=serving()), site())


@pytest.mark.parametrize("scaler", [{"kind": "keda"}, {"kind": "hpa", "prometheus": "http://prometheus:9090"}])
def test_only_keda_asks_prometheus_and_it_always_does(scaler):
    with pytest.raises(ValidationError, match="prometheus is set for keda"):
        Site.model_validate({**site().model_dump(mode="json"), "serving": {"scaler": scaler}})


@pytest.mark.parametrize("resource", ["autoscaling/horizontalpodautoscalers", "keda.sh/scaledobjects"])
def test_a_roll_out_may_do_with_a_scaler_what_it_does_and_no_more(resource):
    group, _, plural = resource.partition("/")
    rules = named("Role", "slipway-deployer")["rules"]

    [verbs] = [rule["verbs"] for rule in rules if (rule["apiGroups"], rule["resources"]) == ([group], [plural])]

    assert sorted(verbs) == ["create", "delete", "get", "patch"]
