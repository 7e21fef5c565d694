"""What happens to pods when the server is killed, restarted or stopped for good."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from kubernetes import client, watch

from .server import wait_for

TICKS = "for n in range({}): print('tick', n, flush=True); time.sleep(0.1)\n"


def processes_of(state):
    """Every other process that names a state folder in its command line or environment."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if str(state).encode() in text and int(folder.name) != os.getpid():
            pids.append(int(folder.name))
    return pids


def test_pods_outlive_a_killed_server_and_are_taken_over(own_cluster, space_in, tmp_path):
    space = space_in(own_cluster, "crash")
    space.run("ticks", f"import time\n{TICKS.format(10)}{wait_for(tmp_path / 'go')}{TICKS.format(20)}")
    space.started("ticks")
    before = space.pod("ticks").status.container_statuses[0].container_id

    own_cluster.kill()
    own_cluster.start()
    (tmp_path / "go").touch()
    space = RestartedSpace(own_cluster, space)
    pod = space.finished("ticks")

    assert space.logs("ticks").splitlines() == [f"tick {n}" for n in [*range(10), *range(20)]]
    status = pod.status.container_statuses[0]
    assert (status.container_id, status.restart_count, status.state.terminated.exit_code) == (before, 0, 0)


def test_a_pod_that_ended_while_the_server_was_away_has_its_status(own_cluster, space_in, until, tmp_path):
    space = space_in(own_cluster, "crash")
    space.run("short", wait_for(tmp_path / "go") + "raise SystemExit(65)")

    own_cluster.kill()
    (tmp_path / "go").touch()
    until(lambda: not processes_of(own_cluster.state))
    own_cluster.start()

    pod = RestartedSpace(own_cluster, space).finished("short")
    assert pod.status.container_statuses[0].state.terminated.exit_code == 65


def test_a_shim_that_died_with_the_server_is_noticed(own_cluster, space_in):
    space = space_in(own_cluster, "crash")
    space.run("lost", "import time; time.sleep(600)")
    space.started("lost")

    own_cluster.kill()
    for pid in processes_of(own_cluster.state):
        with contextlib.suppress(ProcessLookupError):  # it ended since
            os.kill(pid, signal.SIGKILL)
    own_cluster.start()

    state = RestartedSpace(own_cluster, space).finished("lost").status.container_statuses[0].state.terminated
    assert (state.exit_code, state.reason) == (137, "ContainerStatusUnknown")


def test_a_watch_from_before_the_restart_is_told_to_list_again(own_cluster):
    version = own_cluster.core.list_config_map_for_all_namespaces().metadata.resource_version
    own_cluster.core.create_namespaced_config_map("default", {"metadata": {"name": "m"}})

    own_cluster.kill()
    own_cluster.start()

    assert own_cluster.core.read_namespaced_config_map("m", "default").metadata.name == "m"
    stream = watch.Watch().stream(
        own_cluster.core.list_config_map_for_all_namespaces, resource_version=version, timeout_seconds=2
    )
    with pytest.raises(client.ApiException) as caught:
        list(stream)
    assert caught.value.status == 410


def test_stop_leaves_no_process_and_a_new_start_brings_deployments_back(own_cluster, space_in, until):
    space = space_in(own_cluster, "stopped")
    container = {
        "name": "one",
        "image": "test/python:1",
        "command": ["python", "-c", "import time; time.sleep(600)"],
    }
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    space.apps.create_namespaced_deployment(space.name, {"metadata": {"name": "a"}, "spec": spec})
    space.run("step", "import time; time.sleep(600)")
    space.started("step")
    until(lambda: space.apps.read_namespaced_deployment("a", space.name).status.ready_replicas == 1)

    own_cluster.stop()
    until(lambda: not processes_of(own_cluster.state))
    own_cluster.start()
    space = RestartedSpace(own_cluster, space)

    assert space.finished("step").status.phase == "Failed"
    until(lambda: space.apps.read_namespaced_deployment("a", space.name).status.ready_replicas == 1)


def test_stop_ends_pods_whose_server_is_dead(own_cluster, space_in, until):
    space = space_in(own_cluster, "dead")
    space.run("sleeper", "import time; time.sleep(600)")
    space.started("sleeper")

    own_cluster.kill()
    own_cluster.run_stop()

    until(lambda: not processes_of(own_cluster.state))


def test_stop_ends_pods_whose_server_dies_while_it_is_asked(own_cluster, space_in, until):
    space = space_in(own_cluster, "dying")
    space.run("sleeper", "import time; time.sleep(600)")
    space.started("sleeper")

    own_cluster.process.send_signal(signal.SIGSTOP)
    stopping = own_cluster.spawn_stop()
    until(lambda: has_socket(stopping.pid))
    own_cluster.kill()

    assert stopping.wait(180) == 0
    until(lambda: not processes_of(own_cluster.state))


def has_socket(pid):
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed since
            if str(link.readlink()).startswith("socket:"):
                return True
    return False


def test_two_servers_run_side_by_side_and_one_folder_has_one(own_cluster, cluster):
    first = {pod.status.pod_ip for pod in (run_one(one) for one in (cluster, own_cluster))}

    second = own_cluster.spawn()
    output, _ = second.communicate(timeout=90)

    assert len({address.split(".")[1] for address in first}) == 2
    assert (second.returncode, "already runs" in output) == (65, True)


def run_one(cluster):
    container = {"name": "base", "image": "test/python:1", "command": ["python", "-c", "pass"]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return cluster.core.create_namespaced_pod("default", {"metadata": {"generateName": "one-"}, "spec": spec})


class RestartedSpace:
    """The same namespace, seen through the clients of the new server."""

    def __new__(cls, cluster, space):
        space.cluster, space.core, space.apps = cluster, cluster.core, cluster.apps
        return space
