"""Logins as k8s_manifests/airflow/values.yaml sets them, with the packages of images/airflow: real users, over HTTP."""

import secrets
import subprocess
import sys

import httpx
import pytest
import yaml

from local.airflow.settings import database_address
from tests.airflows.served import Served
from tests.local.packaging.conftest import uv
from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S, until

SETTINGS = REPOSITORY / "k8s_manifests" / "airflow"
LOCKS = [REPOSITORY / "requirements" / f"{name}.lock" for name in ("airflow", "airflow-image")]
ROLES = {"admin": "Admin", "ci": "User", "ann": "Viewer"}


class ApiServer(Served):
    """Airflow's API with the values of its chart."""

    def __init__(self, python, folder):
        super().__init__(python, folder)
        self.address = f"http://127.0.0.1:{self._port}"
        self.passwords = {user: secrets.token_urlsafe(12) for user in ROLES}
        values = {
            f"AIRFLOW__{section}__{option}".upper(): str(value)
            for name in ("settings.yaml", "values.yaml")
            for section, options in yaml.safe_load((SETTINGS / name).read_text())["config"].items()
            for option, value in options.items()
        }
        self._variables = values | {
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database_address(folder / "airflow.db"),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(48),
        }

    def __enter__(self):
        self._airflow("db", "migrate")
        for user, role in ROLES.items():
            names = ("--firstname", user, "--lastname", "Example", "--email", f"{user}@example.com")
            self._airflow(
                "users", "create", "--username", user, "--role", role, "--password", self.passwords[user], *names
            )
        super().__enter__()
        until(lambda: httpx.get(f"{self.address}/api/v2/version", timeout=PATIENCE_S).is_success)
        return self

    def _airflow(self, *words):
        command = [self._python, "-m", "airflow", *words]
        done = subprocess.run(
            command, env=self._environment(), cwd=self._folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def _words(self):
        return "airflow", "api-server", "--apps", "core", "--host", "127.0.0.1", "--port", self._port, "--workers", 1

    def ask(self, user, method, path):
        """The status of a request of a user, who logs in as `slipway` does."""
        login = {"username": user, "password": self.passwords.get(user, "guessed")}
        given = httpx.post(f"{self.address}/auth/token", json=login, timeout=PATIENCE_S)
        headers = {"Authorization": f"Bearer {given.json()['access_token']}"} if given.is_success else {}
        body = {"logical_date": None} if method == "POST" else None
        url = f"{self.address}/api/v2/{path}"
        return httpx.request(method, url, headers=headers, json=body, timeout=PATIENCE_S).status_code


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    python = tmp_path_factory.mktemp("image") / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, python.parents[1])
    locks = [argument for lock in LOCKS for argument in ("--requirements", lock)]
    uv("pip", "install", "--quiet", "--python", python, "--no-deps", "--require-hashes", *locks)
    with ApiServer(python, tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.mark.parametrize(("user", "starts", "reads"), [
    ("stranger", 401, 401),
    ("ann", 403, 403),
    ("ci", 404, 403),  # there is no such model, which only those learn who may release it
    ("admin", 404, 200),
])  # fmt: skip
def test_each_role_starts_releases_and_reads_connections_as_it_should(api, user, starts, reads):
    assert api.ask(user, "POST", "dags/release__none/dagRuns") == starts
    assert api.ask(user, "GET", "connections") == reads
