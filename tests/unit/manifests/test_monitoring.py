"""Alerts, dashboards and the exporter: valid, answering over samples, and reading only metrics that something exports."""

import json
import re
import shutil
import subprocess
from os.path import relpath

import pytest
import yaml

from slipway.tasks.arguments import METRICS_PORT, parse
from slipway.tasks.contracts.fit.placement import GPU_PRODUCT
from slipway.tasks.rollout.act.channel_metrics import DESCRIPTIONS
from slipway.tasks.serving.openai_api.generation.metrics import AnswerMetrics
from slipway.tasks.serving.rendered import manifests
from tests.contracts.recorded import check_object, contract
from tests.fakes.documents.rollouts import version
from tests.fakes.workspace import site
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_all_yaml, load_yaml
from tests.unit.manifests.objects import MANIFESTS, listed, violations

COMPONENT, AUTOSCALING = MANIFESTS / "monitoring", MANIFESTS / "autoscaling"
GPU_METRICS = MANIFESTS / "gpu-metrics"
RECORDS = {"PodMonitor": "pod_monitor.json", "PrometheusRule": "prometheus_rule.json"}
DASHBOARDS = sorted((COMPONENT / "dashboards").glob("*.json"))
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool on this machine")
NOT_METRICS = {
    *("by", "on", "and", "or", "unless", "offset", "group_left", "group_right", "ignoring", "without", "bool"),
    *("sum", "max", "avg", "rate", "increase", "time", "clamp_min", "histogram_quantile", "label_replace"),
}


def groups(folder=COMPONENT):
    return [
        group
        for file in listed(folder)
        if (item := load_yaml(file.read_text()))["kind"] == "PrometheusRule"
        for group in item["spec"]["groups"]
    ]


def rules(folder=COMPONENT):
    return [rule for group in groups(folder) for rule in group["rules"]]


def alerts():
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def queries(dashboard):
    """Every query of a dashboard, with Grafana's variables as it would fill them in."""
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [each["expr"] for each in dashboard["annotations"]["list"]]
    filled = [text.replace("$__rate_interval", "1m").replace("$__range_s", "3600") for text in found]
    return [re.sub(r"\$(model|release|pod)\b", ".*", text) for text in filled]


def metric_names(expression):
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b[0-9]+[smhd]\b", "", bare)
    bare = re.sub(r"\b(by|on|group_left|group_right|without|ignoring)\s*\([^)]*\)", "", bare)
    return {name for name in re.findall(r"[A-Za-z_:][\w:]*", bare) if name not in NOT_METRICS}


def exported():
    """Names of all metrics that can exist: recorded of others, our own, and those that rules record."""
    ours = {metric.name for metric in AnswerMetrics().metrics()} | DESCRIPTIONS.keys()
    recorded = {rule["record"] for folder in (COMPONENT, AUTOSCALING) for rule in rules(folder) if "record" in rule}
    theirs = {name for entry in contract("metrics.yaml").values() for name in entry["names"]}
    parts = {f"{name}{suffix}" for name in ours | theirs for suffix in ("_bucket", "_sum", "_count")}
    return ours | recorded | theirs | parts


def promtool(folder, *arguments, page=""):
    return subprocess.run(
        [PROMTOOL, *arguments], check=False, cwd=folder, capture_output=True, text=True, input=page, timeout=60
    )


@pytest.mark.parametrize("file", [*listed(COMPONENT), *listed(GPU_METRICS)], ids=lambda file: file.stem)
def test_every_object_of_the_component_follows_its_schema(file):
    item = load_yaml(file.read_text())

    if item["kind"] in RECORDS:
        check_object(item, contract(RECORDS[item["kind"]])["openAPIV3Schema"])
    else:
        validate(item)
    assert file.name.startswith(f"{item['kind'].lower()}-")


def test_the_exporter_meets_the_restricted_standard_and_runs_a_command_that_exists():
    [item] = [
        each
        for each in map(load_yaml, (file.read_text() for file in listed(COMPONENT)))
        if each["kind"] == "Deployment"
    ]
    pod = item["spec"]["template"]["spec"]
    [container] = pod["containers"]

    assert violations(pod) == []
    parsed = parse(container["command"][3:], {"SLIPWAY_SITE": "site.yaml"}, description="")
    assert container["ports"] == [{"name": "metrics", "containerPort": METRICS_PORT}]
    assert (container["command"][:3], parsed.port) == (["python", "-m", "slipway.tasks"], METRICS_PORT)


def test_the_gpus_exporter_is_scraped_as_what_it_measures_and_runs_on_every_gpu_node():
    items = {item["kind"]: item for item in map(load_yaml, (file.read_text() for file in listed(GPU_METRICS)))}
    monitor, pod = items["PodMonitor"]["spec"], items["DaemonSet"]["spec"]["template"]

    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert all(endpoint["honorLabels"] for endpoint in monitor["podMetricsEndpoints"])
    [term] = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [{"key": GPU_PRODUCT, "operator": "Exists"}]
    assert re.search(r":\d+\.\d+\.\d+-", pod["spec"]["containers"][0]["image"])


def test_an_overlay_takes_the_component_in_with_what_scalers_need(tmp_path):
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl on this machine")
    overlay = {"resources": [relpath(MANIFESTS / "base", tmp_path)], "components": [relpath(COMPONENT, tmp_path)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))

    done = subprocess.run([kubectl, "kustomize", str(tmp_path)], capture_output=True, text=True, check=True)

    items = {(item["kind"], item["metadata"]["name"]): item for item in load_all_yaml(done.stdout)}
    assert {("PodMonitor", "slipway-serving"), ("PrometheusRule", "slipway-autoscaling")} <= items.keys()
    dashboards = items["ConfigMap", "slipway-dashboards"]
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert set(dashboards["data"]) == {file.name for file in DASHBOARDS}


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_was_found_and_expected_and_what_to_do(name):
    annotations = alerts()[name]["annotations"]
    page, _, anchor = annotations["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (REPOSITORY / page).read_text(), re.MULTILINE)

    assert annotations["summary"]
    assert re.search(r"Found .+; expected .+\. .*Do this: .+\.$", annotations["description"])
    assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert f"`{name}`" in (REPOSITORY / "docs" / "observability.md").read_text()


def test_rules_and_dashboards_read_metrics_that_something_exports():
    expressions = [rule["expr"] for rule in rules()]
    for file in DASHBOARDS:
        dashboard = json.loads(file.read_text())
        expressions += queries(dashboard)
        expressions += [
            re.sub(r"label_values\((.*), \w+\)", r"\1", variable["definition"])
            for variable in dashboard["templating"]["list"]
            if variable["type"] == "query"
        ]
    named = {name for expression in expressions for name in metric_names(expression)}

    assert len(named) > 25
    assert named - exported() == set()


def test_no_series_is_recorded_twice():
    recorded = [rule["record"] for folder in (COMPONENT, AUTOSCALING) for rule in rules(folder) if "record" in rule]

    assert len(recorded) == len(set(recorded))


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_has_its_panels_side_by_side_and_one_data_source(file):
    dashboard = json.loads(file.read_text())
    panels = dashboard["panels"]
    cells = [
        (x, y)
        for panel in panels
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24  # Grafana's grid has 24 columns
    asked = [*panels, *dashboard["annotations"]["list"], *(t for panel in panels for t in panel.get("targets", []))]
    assert {each["datasource"]["uid"] for each in asked if each.get("type") != "row"} == {"${datasource}"}
    assert all(panel["description"] for panel in panels if panel["type"] != "row")


def test_releases_are_marked_at_promotions_and_have_what_people_compare():
    dashboard = json.loads((COMPONENT / "dashboards" / "slipway-releases.json").read_text())

    marks = {each["name"]: each for each in dashboard["annotations"]["list"]}
    assert 'event="promoted"' in marks["Promotions"]["expr"]
    titles = {panel["title"] for panel in dashboard["panels"]}
    assert titles >= {
        "Traffic split",
        "Time to first token",
        "Inter-token latency",
        "Generated tokens per second",
        "KV cache in use",
    }


def test_servers_have_what_the_blueprints_dashboard_shows():
    dashboard = json.loads((COMPONENT / "dashboards" / "slipway-servers.json").read_text())

    titles = {panel["title"] for panel in dashboard["panels"]}
    assert titles >= {"Average GPU power usage", "Compute time", "Cumulative inference requests", "Queue time"}


@needs_promtool
@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_prometheus_parses_every_query_of_a_dashboard(file, tmp_path):
    as_rules = [{"record": f"q:{i}", "expr": text} for i, text in enumerate(queries(json.loads(file.read_text())))]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": as_rules}]}))

    done = promtool(tmp_path, "check", "rules", "rules.yaml")

    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("cases", ["alerts.yaml", "alerts_over_hours.yaml"])
def test_alerts_fire_for_what_is_wrong_and_for_nothing_else(cases, tmp_path):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    (tmp_path / "cases.yaml").write_text((REPOSITORY / "tests" / "fixtures" / "prometheus" / cases).read_text())

    done = promtool(tmp_path, "test", "rules", "cases.yaml")

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_front_exports_metrics_where_the_site_asks_for_them():
    def pod_of(**telemetry):
        where = site(telemetry=telemetry)
        return manifests.deployment(version(1), "s3://b/r.json", where, MANIFESTS / "serving")[0]["spec"]["template"][
            "spec"
        ]

    def front_ports(pod):
        [front] = [each for each in pod["initContainers"] if each["name"] == "front"]
        return {port["name"] for port in front["ports"]}

    loud, quiet = pod_of(metrics=True), pod_of()

    assert front_ports(loud) - front_ports(quiet) == {"front-stats"}
    flag = "--metrics-config=histogram_latencies=true"
    assert flag in loud["containers"][0]["command"]
    assert flag not in quiet["containers"][0]["command"]
    assert "--metrics-config" in contract("tritonserver.yaml")["flags"]
