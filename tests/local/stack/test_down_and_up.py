"""A stack of its own, without Airflow: what `down` ends and what the next `up` finds."""

import os
import signal
import subprocess

import pytest
from kubernetes import client, config

from local.stack import ENVIRONMENTS, REPOSITORY, Stack
from tests.local.chain.whole_chain import processes_naming

# what the stack starts outlives the process that started it
pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")

SLEEPER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "sleeper"},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "base",
                "image": "slipway/tasks-cpu:dev",
                "command": ["python", "-c", "import time; print('up', flush=True); time.sleep(120)"],
            }
        ],
    },
}
OBJECT = {
    "Key": "artifacts/a b/weights.bin",
    "Body": b"\0\1",
    "ContentType": "text/x-weights",
    "Metadata": {"sha256": "12ab"},
}


@pytest.fixture
def stack(tmp_path):
    made = Stack(tmp_path / "stack")
    made.up(say=lambda _: None, airflow=False)
    yield made
    made.down()
    assert processes_naming(str(made.folder)) == {}


def started_pod(stack, until):
    core = client.CoreV1Api(config.new_client_from_config(str(stack.kubeconfig)))
    core.create_namespaced_pod("slipway", SLEEPER)
    until(lambda: core.read_namespaced_pod("sleeper", "slipway").status.phase == "Running")


def test_down_ends_the_pods_of_a_cluster_whose_server_was_killed(stack, until):
    started_pod(stack, until)
    server = next(pid for pid, command in processes_naming(str(stack.folder)).items() if "local.cluster" in command)
    os.kill(server, signal.SIGKILL)
    until(lambda: server not in processes_naming(str(stack.folder)))
    assert any("shim" in command for command in processes_naming(str(stack.folder)).values())

    stack.down()

    assert processes_naming(str(stack.folder)) == {}


def test_a_second_stack_runs_beside_the_first_and_ends_alone(stack, tmp_path):
    second = Stack(tmp_path / "second")
    try:
        second.up(say=lambda _: None, airflow=False)
        assert not set(second.settings.ports.values()) & set(stack.settings.ports.values())
        bucket = second.site()["object_store"]["bucket"]
        second.object_store.client().put_object(Bucket=bucket, **OBJECT)
    finally:
        second.down()

    assert processes_naming(str(second.folder)) == {}
    parts = ("cluster", "hub", "object_store")
    assert [stack.status()[part] for part in parts] == [True] * 3
    assert "Contents" not in stack.object_store.client().list_objects_v2(Bucket=bucket)


def test_objects_come_back_with_what_describes_them(stack):
    bucket = stack.site()["object_store"]["bucket"]
    stack.object_store.client().put_object(Bucket=bucket, **OBJECT)

    stack.down()
    stack.up(say=lambda _: None, airflow=False)

    found = stack.object_store.client().get_object(Bucket=bucket, Key=OBJECT["Key"])
    assert found["Body"].read() == OBJECT["Body"]
    assert {field: found[field] for field in ("Metadata", "ContentType")} == {
        field: OBJECT[field] for field in ("Metadata", "ContentType")
    }


def test_a_save_that_was_cut_leaves_the_older_copy(stack):
    bucket = stack.site()["object_store"]["bucket"]
    stack.object_store.client().put_object(Bucket=bucket, **OBJECT)
    stack.down()
    saved = stack.folder / "object-store" / "buckets"
    saved.rename(saved.with_name("buckets.old"))
    (saved.with_name("buckets.new") / bucket).mkdir(parents=True)

    stack.up(say=lambda _: None, airflow=False)

    assert stack.object_store.client().head_object(Bucket=bucket, Key=OBJECT["Key"])["Metadata"] == {"sha256": "12ab"}


def test_a_stack_that_cannot_start_says_why_in_a_line(tmp_path):
    (tmp_path / "file").touch()
    python = ENVIRONMENTS / "local" / "bin" / "python"
    command = [python, "-m", "local", "up", "--folder", tmp_path / "file" / "stack"]

    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"up: [Errno 20] Not a directory: '{tmp_path}/file/stack'"]
