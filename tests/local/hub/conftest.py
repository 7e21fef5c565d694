"""Fixture repositories written for each file of tests, and the real server process over them."""

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants

from tests.support import plain_http
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.waiting import PATIENCE_S

LOCAL_PYTHON = ENVIRONMENTS / "local" / "bin" / "python"
START_TIMEOUT_S = 30


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """The client has 10 s for each answer; a busy machine may take them."""
    for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):
        monkeypatch.setattr(constants, name, PATIENCE_S)


class Hub:
    """The server as a laptop runs it: its own process, in the environment of the local stack where there is one."""

    def __init__(self, fixtures: Path, state: Path, *further: str) -> None:
        python = LOCAL_PYTHON if LOCAL_PYTHON.exists() else Path(sys.executable)
        self.state, self._before = state, 0
        self.process = subprocess.Popen(
            [python, "-m", "local.hub", "--fixtures", fixtures, "--state", state, *further],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)},
        )
        self.said = self.process.stdout.readline()
        self.announced = json.loads((state / "server.json").read_text())
        self.endpoint = f"http://127.0.0.1:{self.announced['port']}"

    def begin(self):
        """Forget faults and requests of the tests before."""
        self.admin("DELETE")
        self._before = len(self._log())
        return self

    def api(self, token=False):
        return HfApi(endpoint=self.endpoint, token=token)

    def switch_on(self, **fault):
        assert self.admin("POST", fault) == 204

    def admin(self, method, body=None, token=None):
        headers = {"Authorization": f"Bearer {token or self.announced['admin_token']}"}
        return plain_http.request(method, f"{self.endpoint}/_faults", json=body, headers=headers).status_code

    def requests(self, method=None, ending=""):
        self.admin("DELETE")  # answered after every request before it was logged
        return [
            line
            for line in self._log()[self._before :]
            if line["method"] == (method or line["method"]) and line["path"].endswith(ending)
        ]

    def _log(self):
        file = self.state / "access.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=START_TIMEOUT_S)
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def start_hub(folder):
    """Start the server over the repositories that are written by then."""
    started = []

    def start(state="state", *further):
        started.append(Hub(folder / "fixtures", folder / state, *further))
        return started[-1]

    yield start
    for hub in started:
        if hub.process.poll() is None:
            hub.stop()


@pytest.fixture(scope="module")
def write_repository(folder):
    """Write `<org>/<name>` (or `datasets/<org>/<name>`): its declaration and its folders of files."""

    def write(repo, declaration, **folders):
        target = folder / "fixtures" / repo
        for revision, files in folders.items():
            for name, content in files.items():
                path = target / revision / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        (target / "repository.yaml").write_text(json.dumps(declaration))  # JSON is YAML
        return target

    return write


@pytest.fixture(scope="module")
def safetensors():
    """Bytes of a safetensors file from {name: (dtype, shape, raw bytes)}."""

    def build(tensors):
        header, body = {}, b""
        for name, (dtype, shape, raw) in tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
            body += raw
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + body

    return build
