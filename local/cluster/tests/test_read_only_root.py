"""A container with a read-only root file system can write where its pod permits it, and nowhere else."""

import ctypes
import json
import subprocess
from pathlib import Path

import pytest

READ_ONLY = {"securityContext": {"readOnlyRootFilesystem": True}}
TRY = """
import json, os, sys

def write(path):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            stream.write("x")
    except OSError as error:
        return os.strerror(error.errno)
    return "written"

print(json.dumps([write(path) for path in sys.argv[1:]]))
"""


@pytest.fixture
def attempts(space):
    """What became of writes to paths, tried by a pod with these mounts."""

    def run(*paths, mounts=(), volumes=(), **container):
        body = READ_ONLY | {"args": list(paths), "volumeMounts": list(mounts)} | container
        space.run("writes", TRY, container=body, volumes=list(volumes))
        pod = space.finished("writes")
        assert pod.status.phase == "Succeeded", space.logs("writes")
        return dict(zip(paths, json.loads(space.logs("writes")), strict=True))

    return run


SCRATCH = {"name": "scratch", "emptyDir": {}}
TMP = {"name": "tmp", "emptyDir": {}}


@pytest.fixture(scope="module")
def method(cluster):
    return json.loads((cluster.state / "server.json").read_text())["confinement"]


@pytest.fixture(autouse=True)
def _enforced(method, request):
    if method == "none" and request.function is not test_the_server_uses_what_the_kernel_permits:
        pytest.skip("this kernel permits neither user namespaces nor Landlock")


def test_the_server_uses_what_the_kernel_permits(method):
    isolated = subprocess.run(["unshare", "--user", "--mount", "true"], capture_output=True, check=False)
    landlock_version = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)

    expected = "namespaces" if isolated.returncode == 0 else "landlock" if landlock_version > 0 else "none"

    assert method == expected


def test_nothing_is_writable_without_a_mount(attempts):
    results = attempts("/tmp/file", "/var/tmp/file", "/home/file", "/etc/file", "/scratch/file")

    assert not {path for path, result in results.items() if result == "written"}


def test_a_refused_write_fails_as_on_a_read_only_file_system(attempts, method):
    expected = "Read-only file system" if method == "namespaces" else "Permission denied"

    assert attempts("/etc/file") == {"/etc/file": expected}


def test_the_home_and_working_folders_of_an_image_are_read_only(space):
    code = "import os\nfor path in (os.environ['HOME'], os.getcwd()):\n  print(os.access(path, os.W_OK))"
    space.run("looks", code, container=READ_ONLY)
    space.finished("looks")

    assert space.logs("looks").split() == ["False", "False"]


def test_what_is_mounted_is_writable(attempts):
    mounts = [{"name": "scratch", "mountPath": "/scratch"}, {"name": "tmp", "mountPath": "/tmp"}]

    results = attempts("/scratch/a/b", "/tmp/a/b", "/var/tmp/file", mounts=mounts, volumes=[SCRATCH, TMP])

    assert results == {"/scratch/a/b": "written", "/tmp/a/b": "written", "/var/tmp/file": results["/var/tmp/file"]}
    assert results["/var/tmp/file"] != "written"


def test_a_mount_marked_read_only_is_not_writable(attempts):
    mounts = [{"name": "scratch", "mountPath": "/scratch", "readOnly": True}]

    assert attempts("/scratch/file", mounts=mounts, volumes=[SCRATCH])["/scratch/file"] != "written"


def test_config_maps_are_not_writable_even_without_the_mark(attempts, space):
    space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "site"}, "data": {"site.yaml": "here"}})
    volumes = [{"name": "site", "configMap": {"name": "site"}}]

    results = attempts("/etc/app/site.yaml", mounts=[{"name": "site", "mountPath": "/etc/app"}], volumes=volumes)

    assert results["/etc/app/site.yaml"] != "written"


def test_devices_and_shared_memory_are_writable_as_in_a_container(attempts):
    results = attempts("/dev/null", "/dev/shm/test-file", "/proc/self/comm")
    Path("/dev/shm/test-file").unlink(missing_ok=True)  # the machine's, without namespaces

    assert set(results.values()) == {"written"}


def test_the_termination_log_is_writable(space):
    code = "import os; open(os.environ['WHERE'], 'w').write('3 files stored')"
    container = READ_ONLY | {"env": [{"name": "WHERE", "value": "/dev/termination-log"}]}
    space.run("speaks", code, container=container)

    assert space.finished("speaks").status.container_statuses[0].state.terminated.message == "3 files stored"


def test_each_pod_has_a_tmp_of_its_own(space, method):
    if method != "namespaces":
        pytest.skip("needs mount namespaces, which this machine does not permit")
    mounted = READ_ONLY | {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    code = "import os, time; print(os.listdir('/tmp')); open('/tmp/{0}', 'w'); print(os.path.exists('/tmp/{0}'))"
    for name in ("first", "second"):
        space.run(name, code.format(f"test-{name}"), container=mounted, volumes=[TMP])
        space.finished(name)

    assert "test-first" not in space.logs("second")
    assert space.logs("second").splitlines()[-1] == "True"


def test_containers_of_a_pod_share_a_mounted_tmp(space):
    mounted = READ_ONLY | {"image": "test/python:1", "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    first = {"name": "first", "command": ["python", "-c", "open('/tmp/test-shared', 'w').write('hello')"], **mounted}
    reading = "import os; print(open('/tmp/test-shared').read()); os.unlink('/tmp/test-shared')"
    space.run("shares", reading, container=mounted, initContainers=[first], volumes=[TMP])
    space.finished("shares")

    assert space.logs("shares").strip() == "hello"


def test_shared_memory_ends_at_64_mib(space, method):
    if method != "namespaces":
        pytest.skip("needs mount namespaces, which this machine does not permit")
    code = "with open('/dev/shm/full', 'wb') as stream:\n  for _ in range(65): stream.write(bytes(1024**2)); stream.flush()"
    space.run("fills", code, container=READ_ONLY)
    space.finished("fills")

    assert "No space left on device" in space.logs("fills")


def test_a_command_of_a_probe_is_confined_too(space, until):
    probe = {"exec": {"command": ["touch", "/var/tmp/test-probe"]}, "periodSeconds": 1, "timeoutSeconds": 30}
    space.run("probed", "import time; time.sleep(600)", container=READ_ONLY | {"readinessProbe": probe})

    def told():
        events = space.core.list_namespaced_event(space.name).items
        return [event.message for event in events if event.reason == "Unhealthy"]

    assert "touch" in until(told)[0]


def test_a_container_with_a_writable_root_is_left_alone(attempts, tmp_path):
    assert attempts(str(tmp_path / "file"), securityContext={}) == {str(tmp_path / "file"): "written"}
