"""Recording rules, alerts and dashboards over the metrics of a real Triton and a real Envoy, in a real Prometheus."""

import contextlib
import json
import os
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request

import pytest
import yaml

from slipway.tasks.serving.rendered import front
from tests.local.serving.triton_server import LOOPBACK
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.ports import free_ports
from tests.support.waiting import PATIENCE_S, until
from tests.unit.manifests.test_monitoring import AUTOSCALING, COMPONENT, DASHBOARDS, groups, queries

PROMETHEUS = shutil.which("prometheus")
ENVOY = ENVIRONMENTS / "front" / "bin" / "envoy"
QUESTION = "What is the capital of France?"
CLIENTS = 4
LABELS = {
    "namespace": "slipway-serving",
    "pod": "demo-1-x",
    "slipway_dev_model": "demo",
    "slipway_dev_release": "demo-1",
}

pytestmark = [
    pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus on this machine (apt install prometheus)"),
    pytest.mark.skipif(not ENVOY.exists(), reason="Envoy is missing: python3 -m local.environments front"),
]


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
        return response.read().decode()


@contextlib.contextmanager
def running(command, folder, name):
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]})
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def answered(condition, process, log):
    def look():
        assert process.poll() is None, log.read_text()[-3000:]
        with contextlib.suppress(OSError):
            return condition()

    return until(look, every_s=0.3)


def envoy_config(triton, http_port, stats_port):
    """The front as pods have it, on ports that are free here."""
    config = json.loads(front.config(LOOPBACK, 60, REPOSITORY / "k8s_manifests" / "serving", front.STATS_PORT))
    ports = {"http": http_port, "stats": stats_port}
    resources = config["static_resources"]
    resources["listeners"] = [each for each in resources["listeners"] if each["name"] in ports]
    for each in resources["listeners"]:
        each["address"]["socket_address"]["port_value"] = ports[each["name"]]
    for each in resources["clusters"]:
        if each["name"] == "http":
            [endpoint] = each["load_assignment"]["endpoints"][0]["lb_endpoints"]
            endpoint["endpoint"]["address"]["socket_address"]["port_value"] = triton.http_port
    return config


class Prometheus:
    """One that scrapes and evaluates every second; rates look back as far as the rules say."""

    def __init__(self, port, log):
        self.url, self.log = f"http://{LOOPBACK}:{port}", log

    def query(self, expression):
        found = json.loads(get(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
        assert found["status"] == "success", found
        return found["data"]["result"]


@pytest.fixture(scope="module")
def watched(start_server, make_repository, tmp_path_factory):
    """A Triton behind a front, both scraped, with clients that ask all the time."""
    folder = tmp_path_factory.mktemp("watched")
    triton = start_server(make_repository(), metrics=True, arguments=("--metrics-config=histogram_latencies=true",))
    http_port, stats_port, port = free_ports(3)
    config = envoy_config(triton, http_port, stats_port)
    targets = [f"{LOOPBACK}:{triton.metrics_port}", f"{LOOPBACK}:{stats_port}"]
    scrape = {"job_name": "pods", "static_configs": [{"targets": targets, "labels": LABELS}]}
    # evaluated as often as is scraped, in place of every 15 s
    found = [{**group, "interval": "1s"} for where in (COMPONENT, AUTOSCALING) for group in groups(where)]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": found}))
    settings = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["rules.yaml"]}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump({**settings, "scrape_configs": [scrape]}))
    envoy = [ENVOY, "--disable-hot-restart", "--concurrency", "1", "--config-yaml", json.dumps(config)]
    storage = f"--storage.tsdb.path={folder / 'data'}"
    prometheus = [PROMETHEUS, "--config.file=prometheus.yaml", f"--web.listen-address={LOOPBACK}:{port}", storage]
    stop = threading.Event()

    def ask():
        body = json.dumps({"text_input": QUESTION, "stream": True}).encode()
        url = f"http://{LOOPBACK}:{http_port}/v2/models/demo/generate_stream"
        while not stop.is_set():
            with contextlib.suppress(OSError), urllib.request.urlopen(url, body, timeout=PATIENCE_S) as response:
                response.read()

    with running(envoy, folder, "envoy"), running(prometheus, folder, "prometheus") as process:
        server = Prometheus(port, folder / "prometheus.log")
        clients = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            answered(lambda: server.query("release:requests_in_flight:sum"), process, server.log)
            answered(lambda: server.query("triton:request_rate:max > 0"), process, server.log)
            yield server, triton
        finally:
            stop.set()
            for client in clients:
                client.join()


@pytest.mark.parametrize(
    ("series", "least", "most"),
    [
        ("triton:request_rate:max", 0.001, 1000),
        ("triton:queue_compute:ratio", 0, 1),
        ("release:triton_errors:ratio_rate5m", 0, 0),
        ("release:front_errors:ratio_rate5m", 0, 0.5),
        ("release:waiting_requests:sum", 0, CLIENTS),
    ],
)
def test_a_recorded_series_has_one_sample_for_the_pod(watched, series, least, most):
    server, _ = watched

    [sample] = until(lambda: server.query(series))
    assert least <= float(sample["value"][1]) <= most
    assert sample["metric"]["namespace"] == LABELS["namespace"]


def test_the_front_counts_the_clients_that_wait(watched):
    server, _ = watched

    def several():
        # without a sample, if the server was asked when it was held up
        seen = max((float(each["value"][1]) for each in server.query("release:requests_in_flight:sum")), default=0.0)
        return seen if seen >= 2 else None

    assert until(several) <= CLIENTS


def test_every_rule_is_healthy_and_nothing_is_alarmed(watched):
    server, _ = watched

    rules = [
        rule for group in json.loads(get(f"{server.url}/api/v1/rules"))["data"]["groups"] for rule in group["rules"]
    ]

    assert len(rules) == sum(len(group["rules"]) for folder in (COMPONENT, AUTOSCALING) for group in groups(folder))
    assert {rule.get("lastError") for rule in rules} == {None}
    assert not [rule["name"] for rule in rules if rule["type"] == "alerting" and rule["state"] == "firing"]


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_prometheus_takes_every_query_of_a_dashboard(watched, file):
    server, _ = watched

    for text in queries(json.loads(file.read_text())):
        server.query(text)
        if ("nv_inference_request_" in text and "failure" not in text) or "rq_active" in text:
            until(lambda text=text: server.query(text))  # without a sample, if the server was asked when it was held up


def test_the_recorded_names_are_those_of_this_triton(watched):
    _, triton = watched
    text = get(f"http://{LOOPBACK}:{triton.metrics_port}/metrics")
    recorded = yaml.safe_load((REPOSITORY / "tests" / "contracts" / "metrics.yaml").read_text())

    exported = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert set(recorded["triton"]["names"]) <= exported
    assert not set(recorded["triton_newer"]["names"]) & exported
