"""The embedded cluster in a process of its own, whose API server can be taken away and brought back."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import yaml

from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.waiting import PATIENCE_S

PYTHON = ENVIRONMENTS / "local" / "bin" / "python"


class ClusterProcess:
    """The cluster, with a table of images and its state in a folder.

    Without its API server, writes fail, watches break and what runs in pods goes on, as in any cluster.
    """

    def __init__(self, folder, images, context, *options):
        """`images` is the table of images, `options` are further ones of `python -m local.cluster`."""
        self.kubeconfig, self.state, self.context = folder / "kubeconfig", folder / "state", context
        table = folder / "images.yaml"
        table.write_text(yaml.safe_dump({"images": images}))
        self._folder, self._port, self._options = folder, 0, ["--images", table, *options]
        self.start()

    def start(self):
        """Start it for the first time, or again at its port after it was killed."""
        options = ["--state", self.state, "--port", self._port, "--kubeconfig", self.kubeconfig]
        options += ["--name", self.context, *self._options]
        self.process = subprocess.Popen(
            [str(PYTHON), "-m", "local.cluster", *map(str, options)],
            cwd=REPOSITORY,
            env={"PATH": os.environ["PATH"], "HOME": str(self._folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line.startswith("{"), line + self.process.stdout.read()
        self._port = json.loads(line)["port"]
        assert self._port > 0

    def kill(self):
        """SIGKILL of the server alone; its pods go on."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()

    def lose_node(self):
        """SIGKILL of the server and of every process of a pod."""
        self.kill()
        left = {int(folder.name) for folder in Path("/proc").glob("[0-9]*") if str(self.state) in _of_process(folder)}
        for pid in left - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self):
        """End it with all of its pods."""
        command = [str(PYTHON), "-m", "local.cluster", "stop", "--state", str(self.state)]
        subprocess.run(command, cwd=REPOSITORY, check=True, timeout=PATIENCE_S)
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


def kill_container(state, pod, container):
    """SIGKILL of the first process of a pod's container; `state` is the cluster's folder."""
    attempts = (state / "pods" / pod["metadata"]["uid"] / "containers" / container).glob("*/started.json")
    newest = max(attempts, key=lambda file: int(file.parent.name))
    os.kill(json.loads(newest.read_text())["pid"], signal.SIGKILL)


def restart_counts(pods):
    """How often each container of these pods was started again, by the pod's name and its own."""
    return {
        (pod["metadata"]["name"], each["name"]): each["restartCount"]
        for pod in pods
        for statuses in ("containerStatuses", "initContainerStatuses")
        for each in pod["status"].get(statuses) or []
    }


def _of_process(folder):
    """Command line and environment of a process."""
    try:
        return ((folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()).decode(errors="replace")
    except OSError:
        return ""
