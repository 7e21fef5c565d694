"""Helm's own library installs, upgrades and uninstalls the chart in the embedded cluster.

It keeps its releases in memory, because it writes them as protobuf, which this cluster does not read.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import ENVIRONMENTS, REPOSITORY

HELM = """
import json, sys
import helm_python
kubeconfig, chart, values = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with helm_python.Config(kubeconfig_path=kubeconfig, namespace="slipway-chart", storage_driver="memory") as helm:
    for command in ("install", "upgrade"):
        done = getattr(helm, command)(chart, "slipway", values[command], namespace="slipway-chart", timeout=300)
        print(json.dumps([done["status"], done["revision"], done["manifest"]]), flush=True)
        sys.stdin.readline()
    helm.uninstall("slipway", timeout=300)
"""
PLACES = ("--images", "local/cluster/tests/images.yaml", "--place", "PYTHON=/usr/bin")
KEPT = {"Namespace/slipway-serving": {"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}}}

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")


@pytest.fixture
def kubeconfig(tmp_path):
    file, python = tmp_path / "kubeconfig", ENVIRONMENTS / "local" / "bin" / "python"
    state = ("--state", tmp_path / "state")
    command = [python, "-m", "local.cluster", *state, "--port", "0", "--kubeconfig", file, "--name", "bare", *PLACES]
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=REPOSITORY, env=bare, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline().startswith("{")
        yield file
        subprocess.run([python, "-m", "local.cluster", "stop", *state], cwd=REPOSITORY, check=True)


@pytest.fixture
def chart(tmp_path):
    command = [sys.executable, REPOSITORY / "k8s_manifests" / "chart" / "package.py", tmp_path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def names(kubeconfig, manifest):
    """Names of those objects of a manifest that the cluster has."""
    command = ["kubectl", "get", "--ignore-not-found", "--output", "name", "--filename", "-"]
    environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
    done = subprocess.run(command, env=environment, input=manifest, capture_output=True, text=True, check=True)
    return sorted(done.stdout.split())


def test_the_chart_is_installed_upgraded_with_a_component_and_uninstalled(kubeconfig, chart):
    values = {"install": {}, "upgrade": {"components": {"multinode": True}, "patches": KEPT}}
    command = [ENVIRONMENTS / "helm" / "bin" / "python", "-c", HELM, kubeconfig, chart, json.dumps(values)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as helm:
        for revision in (1, 2):
            status, number, manifest = json.loads(helm.stdout.readline())
            assert (status, number) == ("deployed", revision)
            assert len(names(kubeconfig, manifest)) == manifest.count("\nkind: ")
            helm.stdin.write("\n")
            helm.stdin.flush()

    assert helm.returncode == 0
    assert names(kubeconfig, manifest) == ["namespace/slipway-serving"]
