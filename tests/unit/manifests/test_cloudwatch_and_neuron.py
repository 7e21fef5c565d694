"""The CloudWatch agent's configuration and Neuron's monitor: valid, scraping ports that exist, reading metrics that exist."""

import copy
import itertools
import json
import re
import shutil
import subprocess

import jsonschema
import pytest
import yaml

from tests.contracts.recorded import check_object, contract
from tests.support.kubernetes_schemas import validate
from tests.support.yaml_documents import load_yaml
from tests.unit.manifests.objects import MANIFESTS, listed
from tests.unit.manifests.test_monitoring import exported

CLOUDWATCH, NEURON = MANIFESTS / "cloudwatch", MANIFESTS / "neuron-metrics"
AGENT = json.loads((CLOUDWATCH / "agent.json").read_text())
SCRAPED = load_yaml((CLOUDWATCH / "prometheus.yaml").read_text())["scrape_configs"]
PROMETHEUS = AGENT["logs"]["metrics_collected"]["prometheus"]
DECLARATIONS = PROMETHEUS["emf_processor"]["metric_declaration"]
PROMTOOL = shutil.which("promtool")


def item_of(folder, kind):
    return next(each for each in map(load_yaml, (f.read_text() for f in listed(folder))) if each["kind"] == kind)


def names_of(selector):
    """Every metric that a selector of alternatives names."""
    parts = [part.strip("()").split("|") for part in re.split(r"(\([^)]*\))", selector.strip("^$"))]
    return {"".join(words) for words in itertools.product(*parts)}


@pytest.mark.parametrize("file", [*listed(CLOUDWATCH), *listed(NEURON)], ids=lambda file: file.stem)
def test_every_object_follows_its_schema(file):
    item = load_yaml(file.read_text())

    if item["kind"] == "PodMonitor":
        check_object(item, contract("pod_monitor.json")["openAPIV3Schema"])
    else:
        validate(item)
    assert file.name.startswith(f"{item['kind'].lower()}-")


def test_the_agents_configuration_follows_its_schema():
    schema = contract("cloudwatch_agent.json")["schema"]

    jsonschema.validate(AGENT, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"logs": {"metrics_collected": {"prometheus": {"emf_procesor": {}}}}}, schema)


@pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool on this machine")
def test_prometheus_accepts_what_is_scraped(tmp_path):
    """But for Kubernetes' discovery, which Debian's Prometheus is built without."""
    jobs = copy.deepcopy(SCRAPED)
    discovered = [each.pop("kubernetes_sd_configs") for each in jobs]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump({"scrape_configs": jobs}))

    done = subprocess.run([PROMTOOL, "check", "config", file], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert all(each[0].keys() == {"role", "namespaces"} and each[0]["role"] == "pod" for each in discovered)


def test_every_metric_that_is_sent_is_one_that_something_exports():
    named = {
        name for each in DECLARATIONS for selector in each["metric_selectors"] for name in names_of(selector)
    } | PROMETHEUS["emf_processor"]["metric_unit"].keys()

    assert named - exported() == set()


def test_every_declaration_reads_a_job_and_labels_that_its_targets_have():
    jobs = {each["job_name"]: each for each in SCRAPED}
    own = {"dcgm-exporter": {"namespace", "pod"}, "slipway-openai": {"model", "code"}, "slipway-serving": {"model"}}

    for each in DECLARATIONS:
        job = each["label_matcher"].strip("^$")
        given = {rule["target_label"] for rule in jobs[job]["relabel_configs"] if "target_label" in rule}
        used = {label for labels in each["dimensions"] for label in labels}
        assert used <= given | own.get(job, set()) | {"ClusterName"}, job
    assert {each["label_matcher"].strip("^$") for each in DECLARATIONS} == jobs.keys()


def test_the_agent_finds_its_files_and_may_find_its_targets():
    deployment = item_of(CLOUDWATCH, "Deployment")["spec"]
    [container] = deployment["template"]["spec"]["containers"]
    generated = load_yaml((CLOUDWATCH / "kustomization.yaml").read_text())["configMapGenerator"][0]
    roles = {
        item["metadata"]["namespace"]
        for item in map(load_yaml, (file.read_text() for file in listed(CLOUDWATCH)))
        if item["kind"] == "RoleBinding"
    }

    mounted = {mount["mountPath"]: mount["subPath"] for mount in container["volumeMounts"]}
    assert mounted[PROMETHEUS["prometheus_config_path"]] == "prometheus.yaml"
    assert set(mounted.values()) == set(generated["files"])
    asked = {name for each in SCRAPED for sd in each["kubernetes_sd_configs"] for name in sd["namespaces"]["names"]}
    assert asked == roles
    assert deployment["replicas"] == 1


def test_what_is_scraped_beside_models_is_what_the_components_run():
    for folder, name in ((NEURON, "neuron-monitor"), (MANIFESTS / "gpu-metrics", "dcgm-exporter")):
        template = item_of(folder, "DaemonSet")["spec"]["template"]
        monitor = item_of(folder, "PodMonitor")["spec"]
        [job] = [each for each in SCRAPED if each["job_name"] == name]
        kept = {rule["regex"] for rule in job["relabel_configs"] if rule.get("action") == "keep"}
        ports = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}

        assert kept == {template["metadata"]["labels"]["app.kubernetes.io/name"], *ports}
        assert {each["port"] for each in monitor["podMetricsEndpoints"]} == ports
        assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
