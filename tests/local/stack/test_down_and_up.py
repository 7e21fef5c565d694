"""A stack without Airflow: what `down` ends and what the next `up` finds."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess

import pytest
from kubernetes import client, config

from local import client_file
from local.stack import ENVIRONMENTS, REPOSITORY, SERVERS, Stack
from slipway.cli.settings import Settings
from tests.local.chain.whole_chain import processes_naming
from tests.local.stack.pods import NAMESPACE, python_pod
from tests.support.waiting import until

# what the stack starts outlives the process that started it
pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")

SLEEPER = python_pod("sleeper", "import time; print('up', flush=True); time.sleep(120)")
OBJECT = {
    "Key": "artifacts/a b/weights.bin",
    "Body": b"\0\1",
    "ContentType": "text/x-weights",
    "Metadata": {"sha256": "12ab"},
}


def started_pod(stack):
    core = client.CoreV1Api(config.new_client_from_config(str(stack.kubeconfig)))
    core.create_namespaced_pod(NAMESPACE, SLEEPER)
    until(lambda: core.read_namespaced_pod("sleeper", NAMESPACE).status.phase == "Running")


def pid_of(text, stack):
    return next(pid for pid, command in processes_naming(str(stack.folder)).items() if text in command)


def kill_supervisor(stack):
    os.kill(pid_of("supervisor.supervisord", stack), signal.SIGKILL)
    until(lambda: not stack.supervisor.answers())


def put_object(stack):
    stack.object_store.client().put_object(Bucket=stack.site()["object_store"]["bucket"], **OBJECT)


def has_object(stack):
    found = stack.object_store.client().get_object(Bucket=stack.site()["object_store"]["bucket"], Key=OBJECT["Key"])
    return found["Body"].read() == OBJECT["Body"]


def up(stack):
    """What `up` said."""
    said = []
    stack.up(said.append, airflow=False)
    return "\n".join(said)


def test_down_ends_the_pods_of_a_cluster_whose_server_was_killed(stack):
    started_pod(stack)
    kill_supervisor(stack)
    os.kill(pid_of("local.cluster", stack), signal.SIGKILL)
    assert any("shim" in command for command in processes_naming(str(stack.folder)).values())

    stack.down()

    until(lambda: processes_naming(str(stack.folder)) == {})  # a shim ends after what it started


def test_airflow_has_a_token_of_its_own_service_account_that_lets_it_read_no_secret(stack):
    kubeconfig = stack.folder / "airflow.kubeconfig"
    core = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    core.list_namespaced_pod("slipway")

    with pytest.raises(client.ApiException) as denied:
        core.read_namespaced_secret("slipway-s3", "slipway")

    assert (stat.S_IMODE(kubeconfig.stat().st_mode), denied.value.status) == (0o600, 403)
    user = "system:serviceaccount:slipway:slipway-airflow"
    assert f'User "{user}" cannot get resource "secrets"' in json.loads(denied.value.body)["message"]


def test_up_tells_clients_how_to_use_the_stack_and_down_that_it_was_stopped(stack):
    file = stack.folder / client_file.NAME
    environment = {}

    settings = Settings.resolve(environment, stack_file=file)

    assert (settings.kubeconfig, settings.site().hub.endpoint) == (stack.kubeconfig, stack.hub_endpoint)
    assert environment["AWS_SECRET_ACCESS_KEY"] == stack.settings.credentials["AWS_SECRET_ACCESS_KEY"]
    stack.down()
    assert Settings.resolve({}, stack_file=file).local_stack == "was stopped"


def test_a_second_stack_runs_beside_the_first_and_ends_alone(stack, tmp_path):
    second = Stack(tmp_path / "second")
    try:
        second.up(say=lambda _: None, airflow=False)
        assert not set(second.settings.ports.values()) & set(stack.settings.ports.values())
        bucket = second.site()["object_store"]["bucket"]
        second.object_store.client().put_object(Bucket=bucket, Key="of-the-second", Body=b"")
    finally:
        second.down()

    assert processes_naming(str(second.folder)) == {}
    assert [stack.status()[service].runs for service in SERVERS] == [True] * 3
    assert "Contents" not in stack.object_store.client().list_objects_v2(Bucket=bucket, Prefix="of-the-second")


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


@pytest.mark.parametrize("service", SERVERS)
def test_a_server_that_is_killed_is_back_at_its_port_with_what_it_held(stack, service):
    put_object(stack)
    before, ports = stack.status()[service].pid, stack.settings.ports

    os.kill(before, signal.SIGKILL)
    until(lambda: stack.status()[service].pid not in (0, before))

    assert "is taken" not in up(stack)
    assert stack.settings.ports == ports == Stack(stack.folder).settings.ports
    assert has_object(stack)


def test_up_after_the_supervisor_was_killed_keeps_ports_and_objects(stack):
    put_object(stack)
    ports, before = stack.settings.ports, set(processes_naming(str(stack.folder)))
    kill_supervisor(stack)

    assert "the supervisor had been killed" in up(stack)

    assert stack.settings.ports == ports
    assert not before & set(processes_naming(str(stack.folder)))
    assert has_object(stack)


def test_a_port_is_moved_only_when_another_program_has_it_and_the_site_says_so(stack):
    before = stack.settings.ports
    stack.supervisor.stop(["hub"])
    with contextlib.ExitStack() as others:
        others.enter_context(socket.create_server(("127.0.0.1", before["hub"])))
        with contextlib.suppress(OSError):  # another part of the tests may have it already; Airflow does not start here
            others.enter_context(socket.create_server(("127.0.0.1", before["airflow"])))
        said = up(stack)

    after = stack.settings.ports
    assert f"port {before['hub']} of hub is taken by another program: now {after['hub']}" in said
    assert {name for name in before if before[name] != after[name]} == {"hub"}
    assert f"http://127.0.0.1:{after['hub']}" in stack.site_file.read_text()
    config_map = client.CoreV1Api(config.new_client_from_config(str(stack.kubeconfig))).read_namespaced_config_map(
        "slipway-site", "slipway"
    )
    assert config_map.data["site.yaml"] == stack.site_file.read_text()


def test_up_takes_from_others_what_an_older_version_let_them_read(stack):
    opened = [stack.folder, stack.folder / "stack.json", stack.folder / "logs", stack.folder / "logs" / "hub.log"]
    for path in opened:
        path.chmod(0o755)

    up(stack)

    assert [oct(path.stat().st_mode & 0o077) for path in opened] == ["0o0"] * 4


def test_a_stack_that_cannot_start_says_why_in_a_line(tmp_path):
    (tmp_path / "file").touch()
    python = ENVIRONMENTS / "local" / "bin" / "python"
    command = [python, "-m", "local", "up", "--folder", tmp_path / "file" / "stack"]

    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"up: [Errno 20] Not a directory: '{tmp_path}/file/stack'"]


def test_releases_may_come_from_another_hub_than_the_stacks_own(tmp_path):
    own, other = Stack(tmp_path / "own"), Stack(tmp_path / "other", hub="https://huggingface.co")

    assert own.site()["hub"] == {"endpoint": own.hub_endpoint}
    assert other.site()["hub"] == {"endpoint": "https://huggingface.co"}


def test_an_up_that_waited_for_another_one_uses_the_ports_that_the_other_one_chose(stack):
    waited = Stack(stack.folder)
    stack.supervisor.stop(["hub"])
    with socket.create_server(("127.0.0.1", stack.settings.ports["hub"])):
        up(stack)
        up(waited)

    assert waited.settings == stack.settings
