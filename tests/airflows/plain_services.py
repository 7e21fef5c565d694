"""Airflow's services from an environment that has the wheel and nothing of the checkout."""

import contextlib
import json
import os
import secrets
import subprocess

import httpx

from local.airflow.services import COMMANDS, EXECUTION_API, HEALTHY_PARTS
from local.airflow.settings import database_address
from local.processes import free_port
from tests.airflows.served import STARTS_S, end
from tests.support.service_logs import LogFiles, tell
from tests.support.waiting import PATIENCE_S, until

USER = "admin"


class PlainAirflow:
    """`with` serves it on two loopback ports, with SQLite and LocalExecutor; else with Airflow's own settings."""

    def __init__(self, python, home, environment):
        """`home` holds everything that Airflow writes and the folder `dags`; `environment` is further variables."""
        self._bin, self._home, self._port, self._execution_port = python.parent, home, free_port(), free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        self.password = secrets.token_urlsafe(18)
        passwords = home / "passwords.json"
        passwords.write_text(json.dumps({USER: self.password}))
        self.environment = {
            "PATH": f"{self._bin}{os.pathsep}{os.defpath}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "AIRFLOW_HOME": str(home / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self._execution_port}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database_address(home / "airflow.db"),
            "AIRFLOW__API__BASE_URL": self.address,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(48),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(48),
            # one that is busy with other tests is no reason to give a task up
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        } | environment

    def __enter__(self):
        self._ending = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self._ending.close()
            raise
        return self

    def __exit__(self, *_):
        self._ending.close()

    def get(self, path):
        """What Airflow's API answers the administrator."""
        login = {"username": USER, "password": self.password}
        token = httpx.post(f"{self.address}/auth/token", json=login, timeout=PATIENCE_S).json()["access_token"]
        return httpx.get(f"{self.address}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S)

    def _start(self):
        logs = self._home / "service-logs"
        logs.mkdir()
        tell(LogFiles(logs))
        self._run("db-migrate", "db", "migrate").wait(STARTS_S)
        commands = COMMANDS | {EXECUTION_API: (*COMMANDS[EXECUTION_API], "--port", str(self._execution_port))}
        for name, words in commands.items():
            self._ending.callback(end, self._run(name, *words))
        until(self._is_healthy, timeout_s=STARTS_S)

    def _run(self, name, *words):
        with (self._home / "service-logs" / f"{name}.log").open("w") as log:
            return subprocess.Popen(
                [self._bin / "airflow", *words],
                env=self.environment,
                cwd=self._home,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _is_healthy(self):
        with contextlib.suppress(httpx.HTTPError, ValueError):
            health = httpx.get(f"{self.address}/api/v2/monitor/health", timeout=5).json()
            tasks = httpx.get(f"http://127.0.0.1:{self._execution_port}/execution/health", timeout=5)
            return tasks.is_success and all(
                (health.get(part) or {}).get("status") == "healthy" for part in HEALTHY_PARTS
            )
        return False
