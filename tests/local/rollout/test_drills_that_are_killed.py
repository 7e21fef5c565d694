"""`python -m slipway.tasks drill` in processes of their own, with the deployer's rights: a signal ends some of them midway."""

import json
import os
import signal
import subprocess
from dataclasses import replace

import httpx
import pytest
import yaml

from local.object_store.service import LocalObjectStore
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.measured.drill import DrillReport
from slipway.tasks.contracts.site.site import ObjectStoreSite
from slipway.tasks.contracts.site.store_access import IDENTITY_VARIABLE
from slipway.tasks.contracts.stored.lease import ENDED_HOLDERS_VARIABLE
from slipway.tasks.contracts.stored.release import StepResult
from tests.fakes.documents import rollouts
from tests.fakes.documents.rollouts import channel
from tests.fakes.releases import SPEC
from tests.support import plain_http
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.ports import free_ports
from tests.support.waiting import PATIENCE_S, until

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "slipway", "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-guesses"}
BUCKET = yaml.safe_load((REPOSITORY / "sites" / "local.yaml").read_text())["object_store"]["bucket"]
CHANGES = {
    "serving": {"image": "test/triton:good", "ready_timeout_s": 90},
    "gate": {**SPEC["gate"], "smoke": [{"prompt": "1", "answer": "1"}]},
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """The laptop's S3, which gives each service account its own rights."""
    (port,) = free_ports(1)
    store = LocalObjectStore(
        tmp_path_factory.mktemp("s3"), ENVIRONMENTS / "local" / "bin" / "python", port, CREDENTIALS
    )
    service = store.service(REPOSITORY)
    process = subprocess.Popen(service.command, env=service.environment, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    try:
        until(lambda: answers(store.endpoint))
        store.client().create_bucket(Bucket=BUCKET)
        yield store
    finally:
        process.kill()
        process.wait()


def answers(endpoint):
    try:
        return plain_http.get(endpoint).status_code == 403
    except httpx.TransportError:
        return False


@pytest.fixture
def workspace(workspace, objects, monkeypatch):
    """Everything real: the cluster, and two releases of the model in that store."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    client = objects.client()
    for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=item["Key"])
    place = ObjectStoreSite(bucket=BUCKET, endpoint=objects.endpoint)
    site = workspace.site.model_copy(update={"object_store": place})
    found = replace(workspace, site=site, store=S3ObjectStore(place))
    for number in (1, 2):
        rollouts.released(found, number, **CHANGES)
    return found


class Process:
    """The step in a process of its own."""

    def __init__(self, workspace, server, folder, *, run="run-9", seconds=5, ended_holders=()):
        site = folder / "site.yaml"
        site.write_text(yaml.safe_dump(workspace.site.model_dump(mode="json")))
        command = [
            ENVIRONMENTS / "tasks" / "bin" / "python",
            "-m",
            "slipway.tasks",
            "drill",
            "--name",
            "demo",
            "--run",
            run,
        ]
        # no more than a drill needs: while a machine stalls, the front lets only so many wait
        command += ["--request-rate", "4", "--seconds", seconds]
        environment = {
            **CREDENTIALS,
            IDENTITY_VARIABLE: "slipway-deployer",
            ENDED_HOLDERS_VARIABLE: json.dumps(dict(ended_holders)),
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KUBECONFIG": str(server.kubeconfig),
            "SLIPWAY_SITE": str(site),
            "SLIPWAY_SCRATCH": str(folder),
        }
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*map(str, command)], env=environment, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT
            )

    def ends(self, number=None):
        """Send it a signal; its exit code."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def drilling(workspace, server, tmp_path):
    """Starts drills, and ends those that a failed test leaves."""
    started = []

    def start(**options):
        started.append(Process(workspace, server, tmp_path, **options))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


def selected(cluster):
    return cluster.get("Service", "demo")["spec"]["selector"]["slipway.dev/release"]


FIRST, SECOND = (rollouts.version(number).id for number in (1, 2))


def flipped(drilling, cluster, run="run-9"):
    """A drill in the middle: the previous release serves, although the channel names the other one."""
    process = drilling(run=run, seconds=20)
    until(lambda: selected(cluster) == FIRST or process.process.poll() is not None)
    assert selected(cluster) == FIRST, process.log.read_text()
    return process


def test_after_a_drill_that_was_killed_the_next_one_passes_and_one_that_is_told_to_end_puts_the_live_release_back(
    workspace, cluster, drilling, asking
):
    with asking(cluster.live_address("demo")) as client:
        assert flipped(drilling, cluster).ends(signal.SIGKILL) == -signal.SIGKILL
        client.after(50)
        # as Airflow tells the next run
        ended = {"slipway-demo": cluster.lease_holder("slipway-demo").version}
        process = drilling(run="run-10", ended_holders=ended)
        assert process.ends() == 0, process.log.read_text()
        assert_whole(workspace, cluster)

        process = flipped(drilling, cluster, run="run-11")
        assert process.ends(signal.SIGTERM) == 128 + signal.SIGTERM, process.log.read_text()
        assert_whole(workspace, cluster)
        client.after(50)

    assert client.failures == []
    result = StepResult.model_validate_json(workspace.store.read_bytes(workspace.layout.drill("demo", "run-10")))
    report = DrillReport.model_validate_json(workspace.store.read_bytes(result.data["report_uri"]))
    assert (result.data["verdict"], report.verdict, report.failed) == ("passed", "passed", 0), result.summary
    assert report.requests > 20


def assert_whole(workspace, cluster):
    """The live release serves, the other one is warm, and nobody has the lock."""
    assert (selected(cluster), channel(workspace).live.release_id) == (SECOND, SECOND)
    found = {item["metadata"]["name"] for item in cluster.find("Deployment", {"slipway.dev/model": "demo"})}
    assert found == {FIRST, SECOND}
    assert cluster.lease_holder("slipway-demo") is None
