"""The volume of a serving pod is full before its repository is whole: fetch-repository as a process on a small disk."""

import os
import shlex
import subprocess
import sys

import pytest
import yaml

from tests.local.core.servers import PLANTED
from tests.local.faults.model import DONE, WRONG_INPUT
from tests.support.paths import REPOSITORY

SMALL_KIB = 64
WEIGHTS = bytes(256 * 2**10)
MOUNTED = f"mount -t tmpfs -o size={SMALL_KIB}k tmpfs {{folder}} && exec {{command}}"


@pytest.fixture
def fetch(paper_model, tmp_path):
    """Runs fetch-repository of a release, as its pod does; the exit code and what it says."""
    site = paper_model.workspace.site.model_dump(mode="json")
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(site))

    def run(release, folder, *, small):
        folder.mkdir()
        uri = paper_model.workspace.layout.release("demo", release.id)
        command = [sys.executable, "-m", "slipway.tasks", "fetch-repository", "--release", uri, "--to", str(folder)]
        if small:
            words = MOUNTED.format(folder=shlex.quote(str(folder)), command=shlex.join(command))
            command = ["unshare", "--map-root-user", "--mount", "sh", "-c", words]
        environment = {**PLANTED, **os.environ, "SLIPWAY_SITE": str(tmp_path / "site.yaml")}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_full_volume_ends_the_fetch_with_the_setting_to_raise_and_more_room_lets_it_pass(
    fetch, paper_model, tmp_path
):
    new, weights = paper_model.version(), tmp_path / "made" / "demo" / "1" / "model.bin"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(WEIGHTS)
    paper_model.workspace.artifacts.store(
        "publish", new.plan.stages["publish"].key, tmp_path / "made", inputs={}, producer={}, metrics={}, seconds=1
    )
    if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False).returncode:
        pytest.skip("this machine gives no process a mount namespace of its own")

    code, said = fetch(new, tmp_path / "small", small=True)
    assert code == WRONG_INPUT, said
    assert "scratch" in said
    assert paper_model.answers() == paper_model.live

    code, said = fetch(new, tmp_path / "large", small=False)
    assert code == DONE, said
    assert (tmp_path / "large" / "demo/1/model.bin").read_bytes() == WEIGHTS
