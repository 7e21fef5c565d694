"""What a pod goes through: start, logs, messages, restarts, ends."""

import json
from pathlib import Path

import pytest
from kubernetes import client

from .server import DEVICE


def terminated(pod):
    return pod.status.container_statuses[0].state.terminated


def test_a_created_pod_is_answered_once_it_runs(own_cluster, space_in):
    own_cluster.kill()
    own_cluster.more_options = ("--hold-s", "180")
    own_cluster.start()
    pod = space_in(own_cluster, "held").run("runs", "import time; time.sleep(30)")

    assert pod.status.phase == "Running"
    assert pod.status.pod_ip.startswith("127.")


def test_a_followed_log_ends_with_the_container(space):
    space.run("talks", "import time\nfor n in range(4):\n print('tick', n, flush=True); time.sleep(0.2)")

    lines = space.logs("talks", follow=True).splitlines()
    state = terminated(space.finished("talks"))

    assert lines == ["tick 0", "tick 1", "tick 2", "tick 3"]
    assert (state.exit_code, state.reason) == (0, "Completed")


def test_logs_can_be_cut_and_stamped(space):
    space.run("talks", "import sys\nfor n in range(5): print(n)\nprint('x' * 40000)\nsys.stdout.write('no newline')")
    space.finished("talks")

    assert space.logs("talks", tail_lines=1) == "no newline"
    assert "x" * 40000 in space.logs("talks")
    stamp, text = space.logs("talks", timestamps=True).splitlines()[0].split(" ")
    assert (stamp[-1], text) == ("Z", "0")
    assert space.logs("talks", since_seconds=3600).startswith("0\n1\n")


def test_the_termination_log_becomes_the_message(space):
    space.run(
        "speaks",
        "import os; open(os.environ['WHERE'], 'w').write('3 files stored')",
        container={"env": [{"name": "WHERE", "value": "/dev/termination-log"}]},
    )

    assert terminated(space.finished("speaks")).message == "3 files stored"


def test_the_end_of_the_log_is_the_message_when_asked_for(space):
    space.run(
        "fails",
        "print('first'); raise SystemExit('no such model')",
        container={"terminationMessagePolicy": "FallbackToLogsOnError"},
    )

    state = terminated(space.finished("fails"))

    assert state.exit_code == 1
    assert "no such model" in state.message


def test_paths_and_variables_of_the_container_are_replaced(space):
    space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "site"}, "data": {"site.yaml": "here"}})
    space.core.create_namespaced_secret(space.name, {"metadata": {"name": "keys"}, "stringData": {"id": "open sesame"}})
    code = "import sys, os; print(open(sys.argv[1].partition('=')[2]).read(), os.environ['KEY'], os.environ['BOTH'], sys.argv[2])"
    container = {
        "args": ["--site=/etc/app/site.yaml", "$(POD_IP):$(MISSING)"],
        "env": [
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "id"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "BOTH", "value": "$(KEY)!"},
        ],
        "envFrom": [{"configMapRef": {"name": "site"}}],
        "volumeMounts": [{"name": "site", "mountPath": "/etc/app"}],
    }
    pod = space.run("reads", code, container=container, volumes=[{"name": "site", "configMap": {"name": "site"}}])
    space.finished("reads")

    assert space.logs("reads").strip() == f"here open sesame open sesame! {pod.status.pod_ip}:$(MISSING)"


def test_a_running_pod_sees_what_a_secret_holds_now(space, until):
    keys = {"metadata": {"name": "keys"}, "stringData": {"id": "a", "old": "b"}}
    space.core.create_namespaced_secret(space.name, keys)
    code = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
print((folder / "id").read_text(), flush=True)
while (folder / "id").read_text() == "a" or (folder / "old").exists():
    time.sleep(0.1)
print(*sorted(f"{file.name}={file.read_text()}" for file in folder.iterdir()))
"""
    container = {"args": ["/keys"], "volumeMounts": [{"name": "keys", "mountPath": "/keys", "readOnly": True}]}
    space.run("waits", code, container=container, volumes=[{"name": "keys", "secret": {"secretName": "keys"}}])
    until(lambda: space.pod("waits").status.phase == "Running" and space.logs("waits"))

    space.core.replace_namespaced_secret("keys", space.name, keys | {"stringData": {"id": "c", "new": "d"}})
    space.finished("waits")

    assert space.logs("waits").split() == ["a", "id=c", "new=d"]


def test_files_of_volumes_have_the_modes_that_are_asked_for(space):
    space.core.create_namespaced_secret(
        space.name, {"metadata": {"name": "keys"}, "stringData": {"id": "a", "pub": "b"}}
    )
    items = [{"key": "id", "path": "id"}, {"key": "pub", "path": "pub", "mode": 0o644}]
    label = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    volumes = [
        {"name": "plain", "secret": {"secretName": "keys"}},
        {"name": "given", "secret": {"secretName": "keys", "defaultMode": 0o440, "items": items}},
        {"name": "mixed", "projected": {"defaultMode": 0o400, "sources": [{"downwardAPI": {"items": [label]}}]}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}", "readOnly": True} for volume in volumes]
    code = "import os, sys; print(*(oct(os.stat(path).st_mode & 0o777) for path in sys.argv[1:]))"
    arguments = ["/plain/id", "/given/id", "/given/pub", "/mixed/name"]

    space.run("looks", code, container={"args": arguments, "volumeMounts": mounts}, volumes=volumes)
    space.finished("looks")

    assert space.logs("looks").split() == ["0o644", "0o440", "0o644", "0o400"]


def test_a_pod_that_cannot_be_handled_says_so(space, until):
    space.run("odd", "pass", container={"envFrom": [{"secretRef": {}}]})

    def told():
        events = space.core.list_namespaced_event(space.name).items
        return [event for event in events if event.reason == "FailedSync"]

    assert "Error syncing pod" in until(told)[0].message


def test_the_servers_environment_stays_with_the_server(space):
    space.run("looks", "import os, json; print(json.dumps(sorted(os.environ)))")
    space.finished("looks")

    names = set(json.loads(space.logs("looks")))

    assert names <= {"HOME", "HOSTNAME", "KUBECONFIG", "LANG", "LC_CTYPE", "PATH", "PYTHONPATH", "TMPDIR"}


def test_init_containers_run_one_after_the_other_before_the_rest(space):
    def initial(name, code):
        return {
            "name": name,
            "image": "test/python:1",
            "command": ["python", "-c", code, "/data/order"],
            "volumeMounts": [{"name": "work", "mountPath": "/data"}],
        }

    write = "import sys; open(sys.argv[1], 'a').write('{} ')"
    space.run(
        "ordered",
        "import sys; print(open(sys.argv[1]).read())",
        container={"args": ["/data/order"], "volumeMounts": [{"name": "work", "mountPath": "/data"}]},
        initContainers=[initial("first", write.format("first")), initial("second", write.format("second"))],
        volumes=[{"name": "work", "emptyDir": {}}],
    )
    pod = space.finished("ordered")

    assert space.logs("ordered").split() == ["first", "second"]
    assert all(each.ready for each in pod.status.init_container_statuses)


def test_a_failed_init_container_ends_the_pod(space):
    bad = {"name": "fetch", "image": "test/python:1", "command": ["python", "-c", "raise SystemExit(65)"]}

    space.run("never", "print('ran')", initContainers=[bad])
    pod = space.finished("never")

    (fetch,) = pod.status.init_container_statuses
    assert (pod.status.phase, fetch.state.terminated.exit_code, fetch.ready) == ("Failed", 65, False)
    assert pod.status.container_statuses[0].state.waiting.reason == "PodInitializing"


def test_an_init_container_is_not_ready_while_it_runs(space, until):
    slow = {"name": "fetch", "image": "test/python:1", "command": ["python", "-c", "import time; time.sleep(60)"]}

    space.run("fetching", "print('ran')", initContainers=[slow])
    (fetch,) = until(
        lambda: [each for each in space.pod("fetching").status.init_container_statuses or [] if each.state.running]
    )

    assert not fetch.ready


def test_deletion_lets_a_process_finish_within_its_grace(space, until):
    code = (
        "import signal, threading, time\nasked = threading.Event()\n"
        "signal.signal(signal.SIGTERM, lambda *_: asked.set())\nprint('up', flush=True)\n"
        "if asked.wait(60):\n print('asked to end', flush=True); time.sleep(0.5); print('ended', flush=True)"
    )
    space.run("polite", code, terminationGracePeriodSeconds=600)
    until(lambda: "up" in space.logs("polite"))
    log = space.core.read_namespaced_pod_log("polite", space.name, follow=True, _preload_content=False)

    deleted = space.core.delete_namespaced_pod("polite", space.name)
    followed = log.read().decode()
    space.gone("polite")  # without waiting for the rest of its grace

    assert deleted.metadata.deletion_grace_period_seconds == 600
    assert followed.split("\n")[1:3] == ["asked to end", "ended"]


def test_who_ignores_sigterm_is_killed_after_the_grace_with_its_children(space, until):
    code = (
        "import signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import os, time; os.setsid(); time.sleep(600)'])\n"
        "print(child.pid, flush=True)\ntime.sleep(600)"
    )
    space.run("stubborn", code)
    child = int(until(lambda: space.logs("stubborn").strip()))

    space.core.delete_namespaced_pod("stubborn", space.name, grace_period_seconds=1)
    space.gone("stubborn")

    until(lambda: not Path(f"/proc/{child}").exists())


def test_a_process_over_its_memory_limit_is_killed(space):
    space.run(
        "eats",
        "import time; held = bytearray(200 << 20); time.sleep(30)",
        container={"resources": {"limits": {"memory": "100Mi"}}},
    )

    state = terminated(space.finished("eats"))

    assert (state.exit_code, state.reason) == (137, "OOMKilled")


def test_a_killed_process_is_137(space):
    space.run("dies", "import os; os.kill(os.getpid(), 9)")

    assert terminated(space.finished("dies")).exit_code == 137


def test_a_command_that_does_not_exist_is_a_start_error(space):
    space.run("typo", "", container={"command": ["pythno"]})

    state = terminated(space.finished("typo"))

    assert (state.exit_code, state.reason) == (128, "StartError")
    assert "pythno" in state.message


def test_a_failing_container_is_restarted_and_its_last_log_kept(space, until):
    code = "import os; print('try', flush=True); raise SystemExit(1)"
    space.run("retries", code, restartPolicy="OnFailure")

    def restarted():
        status = space.pod("retries").status.container_statuses[0]
        waits = status.state.waiting is not None and status.state.waiting.reason == "CrashLoopBackOff"
        return status if waits else None

    status = until(restarted)

    assert status.restart_count >= 1
    assert status.last_state.terminated.exit_code == 1
    assert space.logs("retries", previous=True) == "try\n"


def test_a_pod_over_its_deadline_fails(space):
    space.run("slow", "import time; time.sleep(60)", activeDeadlineSeconds=1)

    pod = space.finished("slow")

    assert (pod.status.phase, pod.status.reason) == ("Failed", "DeadlineExceeded")


def test_a_pod_for_another_machine_is_never_scheduled(space):
    pod = space.run("elsewhere", "pass", nodeSelector={"nvidia.com/gpu.product": "L4"})

    scheduled = next(one for one in pod.status.conditions if one.type == "PodScheduled")
    assert (pod.status.phase, scheduled.status, scheduled.reason) == ("Pending", "False", "Unschedulable")
    assert scheduled.message.startswith("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")


def test_a_pod_waits_for_a_device_that_another_has(space):
    one = {"container": {"resources": {"limits": {DEVICE: "1"}}}, "nodeSelector": {"disk": "fast"}}
    space.run("first", "import time; time.sleep(60)", **one)
    second = space.run("second", "print('mine')", **one)

    scheduled = next(entry for entry in second.status.conditions if entry.type == "PodScheduled")
    space.core.delete_namespaced_pod("first", space.name, grace_period_seconds=0)

    assert (scheduled.reason, scheduled.message.split(". ")[0]) == (
        "Unschedulable",
        f"0/1 nodes are available: 1 Insufficient {DEVICE}",
    )
    assert space.finished("second").status.phase == "Succeeded"


def test_a_liveness_probe_restarts_what_hangs(space, until):
    probe = {
        "exec": {"command": ["python", "-c", "raise SystemExit(1)"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "timeoutSeconds": 5,
    }
    space.run(
        "hangs",
        "import time; time.sleep(60)",
        restartPolicy="Always",
        container={"livenessProbe": probe},
    )

    until(lambda: space.pod("hangs").status.container_statuses[0].restart_count >= 1)

    reasons = {event.reason for event in space.core.list_namespaced_event(space.name).items}
    assert {"Unhealthy", "Killing"} <= reasons


def test_logs_of_a_container_that_never_started_are_a_bad_request(space):
    space.run("pulls", "pass", container={"image": "nobody/knows:it"})

    with pytest.raises(client.ApiException) as caught:
        space.core.read_namespaced_pod_log("pulls", space.name)

    assert (caught.value.status, "waiting to start" in caught.value.body) == (400, True)
