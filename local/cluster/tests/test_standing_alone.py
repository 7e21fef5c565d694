"""The package runs wherever it is copied to, under whatever name."""

import json
import os
import shutil
import subprocess
import sys

from .server import TESTS


def test_a_copy_under_another_name_serves_and_uses_the_names_that_it_is_given(tmp_path):
    shutil.copytree(TESTS.parent, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
    state, kubeconfig = tmp_path / "state", tmp_path / "kubeconfig"
    program = [sys.executable, "-m", "elsewhere"]
    options = ["--state", state, "--kubeconfig", kubeconfig, "--name", "lifted"]
    options += ["--images", TESTS / "images.yaml", "--place", "PYTHON=/usr/bin"]
    bare = {"cwd": tmp_path, "env": {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}}

    with subprocess.Popen([*program, *options], stdout=subprocess.PIPE, text=True, **bare) as server:
        said = server.stdout.readline()
        stopped = subprocess.run([*program, "stop", "--state", state], check=False, timeout=180, **bare)

    assert json.loads(said)["port"] > 0
    assert (stopped.returncode, server.returncode) == (0, 0)
    assert json.loads(kubeconfig.read_text())["current-context"] == "lifted"
    texts = [file.read_text() for file in TESTS.parent.rglob("*.py") if file.parent != TESTS]
    assert not [text[:80] for text in texts if "slipway" in text.lower()]  # the name of the project that it is part of
