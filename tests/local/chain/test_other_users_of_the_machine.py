"""What another user of the same machine can read of a running stack, and what its ports answer to strangers."""

import json
import stat
import subprocess

import httpx
import pytest

from tests.local.chain.own_stack import FOLDER
from tests.support.processes import processes_naming
from tests.support.walking import below

LOGS = (".log", ".jsonl"), {"log", "shim-errors"}
"""Endings and names."""


@pytest.fixture
def stack(chain):
    if chain.stack is None:
        pytest.skip("the stack was not started here")
    return chain.stack


@pytest.fixture
def secrets(stack):
    """Every credential that the stack made."""
    document = json.loads((FOLDER / "stack.json").read_text())["credentials"]["AWS_SECRET_ACCESS_KEY"]
    airflow = [json.loads((FOLDER / "airflow" / name).read_text()) for name in ("passwords.json", "secrets.json")]
    hub = json.loads((FOLDER / "hub" / "server.json").read_text())["admin_token"]
    cluster = (FOLDER / "cluster" / "token").read_text().strip()
    account = json.loads((FOLDER / "airflow.kubeconfig").read_text())["users"][0]["user"]["token"]
    return {document, hub, cluster, account, *(value for item in airflow for value in item.values())}


def text_of(file):
    """Nothing if the file ended with its pod."""
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def open_to_others(found):
    return [str(path) for path, status in found if stat.S_IMODE(status.st_mode) & 0o077]


def test_no_file_of_the_stack_is_readable_by_others(stack):
    """Containers write to volumes with their own umask, as on a node; the folder of a pod's volumes is closed."""
    found = [(FOLDER, FOLDER.stat())]
    found += [(path, status) for path, status in below(FOLDER) if not stat.S_ISLNK(status.st_mode)]
    pods = FOLDER / "cluster" / "pods"
    volumes = {path for path, _ in found if path.name == "volumes" and path.parent.parent == pods}

    assert len(found) > 50
    assert open_to_others((path, status) for path, status in found if volumes.isdisjoint(path.parents)) == []


def test_no_secret_is_in_a_log(stack, secrets):
    endings, names = LOGS
    files = {path for path, status in below(FOLDER) if stat.S_ISREG(status.st_mode)}
    logs = {path for path in files if path.name.endswith(endings) or path.name in names}

    assert {path.stem for path in logs} >= {"hub", "object-store", "scheduler", "api-server", "supervisord"}
    assert [str(path) for path in logs if any(secret in text_of(path) for secret in secrets)] == []


def test_no_secret_is_in_a_command_line(stack, secrets):
    commands = subprocess.run(["ps", "-e", "-o", "args", "-ww"], capture_output=True, text=True, check=True).stdout

    assert str(FOLDER) in commands
    assert len(processes_naming(str(FOLDER))) >= 8
    assert [secret for secret in secrets if secret in commands] == []


@pytest.mark.parametrize(
    ("port", "method", "path"),
    [
        ("object_store", "GET", "/slipway"),
        ("object_store", "POST", "/moto-api/reset"),
        ("hub", "POST", "/_faults"),
        ("hub", "DELETE", "/_faults"),
        ("cluster", "GET", "/api/v1/namespaces/slipway/secrets"),
        ("cluster", "POST", "/slipway/stop"),
        ("airflow", "GET", "/api/v2/dags"),
        ("airflow", "GET", "/api/v2/connections"),
        ("airflow", "POST", "/api/v2/dags/release__demo-llama/dagRuns"),
        ("execution_api", "GET", "/execution/connections/aws_default"),
        ("execution_api", "GET", "/execution/variables/any"),
        ("airflow", "POST", "/auth/token"),
    ],
)
def test_ports_refuse_strangers(stack, port, method, path):
    scheme = "https" if port == "cluster" else "http"
    url = f"{scheme}://127.0.0.1:{stack.settings.ports[port]}{path}"
    body = {"username": "admin", "password": "admin"} if path == "/auth/token" else {}

    content = body if method == "POST" else None
    answer = httpx.request(method, url, verify=False, json=content, timeout=60)  # noqa: S501

    assert answer.status_code in (401, 403), answer.text
