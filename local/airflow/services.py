"""Airflow on a laptop: its configuration, its database, and the services that the supervisor runs."""

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from local.airflow.settings import AirflowHome, database_address
from local.private_files import PRIVATE_UMASK, make_private, open_private, write_private
from local.supervisor import Service
from slipway.tasks.contracts.errors import PipelineError

EXECUTION_API = "execution-api"
COMMANDS: dict[str, tuple[str, ...]] = {
    # one process for both would lock itself out of SQLite: Airflow 3.3.2 logs each request that changes something in
    # its event loop, where it waits for a task's transaction that the same loop should commit
    "api-server": ("api-server", "--apps", "core"),
    EXECUTION_API: ("api-server", "--apps", "execution"),
    # task logs are files on this machine, so no second port has to serve them
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
STOP_TIMEOUTS_S = {"api-server": 3, EXECUTION_API: 3, "scheduler": 5, "dag-processor": 3, "triggerer": 1}
"""The scheduler's tasks delete their pods meanwhile. A triggerer would wait 10 s for its triggers, although its
state is in the database."""
HEALTHY_PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
KUBERNETES_CONNECTION = json.dumps({"conn_type": "kubernetes"})


class AirflowServices:
    """Airflow in one folder, with the repository's DAGs and plugins. It listens on two loopback ports."""

    def __init__(
        self, folder: Path, envs: Path, repo: Path, ports: tuple[int, int], environment: dict[str, str]
    ) -> None:
        """Start nothing yet.

        Args:
            folder: AIRFLOW_HOME.
            envs: the folder of the Python environments.
            repo: the repository.
            ports: of the API with the UI, and of the API that tasks use.
            environment: further variables of every process: SLIPWAY_SITE, KUBECONFIG, AIRFLOW_CONN_AWS_DEFAULT, ...
        """
        port, self._execution_port = ports
        self.folder, self._repository = folder, repo
        self.address = f"http://127.0.0.1:{port}"
        self._bin = envs / "airflow" / "bin"
        self._lock = repo / "requirements" / "airflow.lock"
        self._home = AirflowHome(folder, repo, port, self._execution_port)
        self._environment = environment

    def prepare(self) -> None:
        """Write the configuration, and create or migrate the database if it does not belong to this Airflow version.

        Raises:
            PipelineError: the migration failed.
        """
        self._home.write()
        stamp, database = self.folder / "migrated-for", self.folder / "airflow.db"
        lock_digest = hashlib.sha256(self._lock.read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text() == lock_digest and database.exists():
            return
        if database.exists():
            self._migrate(database)
        else:
            self._copy_migrated(database, lock_digest)
        write_private(stamp, lock_digest)

    def _copy_migrated(self, database: Path, lock_digest: str) -> None:
        """Copy an empty database, which is made once for each version of Airflow and serves every stack."""
        made = self._repository / ".slipway" / "airflow-databases" / f"{lock_digest}.db"
        make_private(made.parent)
        with open_private(made.with_suffix(".lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                unfinished = made.with_suffix(".new")
                unfinished.unlink(missing_ok=True)
                self._migrate(unfinished)
                _copy(unfinished, made)
                unfinished.unlink()
        _copy(made, database)

    def _migrate(self, database: Path) -> None:
        done = subprocess.run(
            [str(self._bin / "python"), "-m", "local.airflow.program", "db", "migrate"],
            env={**self.environment(), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database_address(database)},
            cwd=self._repository,
            capture_output=True,
            text=True,
            umask=PRIVATE_UMASK,
            check=False,
        )
        if done.returncode:
            raise PipelineError(
                f"`airflow db migrate` exited with {done.returncode}", found=(done.stdout + done.stderr)[-2000:]
            )

    def services(self, depends_on: str) -> list[Service]:
        """Airflow's services, for the supervisor. Call `prepare` first.

        Args:
            depends_on: whatever else they read when they start; they are restarted when it changes.
        """
        text = f"{self._home.configuration_file.read_text()}\n{depends_on}"
        airflow, environment = (str(self._bin / "python"), "-m", "local.airflow.program"), self.environment()
        commands = COMMANDS | {EXECUTION_API: (*COMMANDS[EXECUTION_API], "--port", str(self._execution_port))}
        return [Service(name, (*airflow, *commands[name]), environment, self._repository, text) for name in commands]

    def unhealthy_parts(self) -> list[str]:
        """The parts that do not report that they are healthy, by Airflow's names.

        Airflow 3.3.2 builds the API of tasks for its first request, which takes 6 s on two cores and more on busy ones,
        and answers nobody meanwhile. So it is asked from the beginning, while the other services start.
        """
        unhealthy = []
        try:
            health = self._answer(f"{self.address}/api/v2/monitor/health")
        except (OSError, ValueError):
            unhealthy.append("api_server")
        else:
            unhealthy += [part for part in HEALTHY_PARTS if (health.get(part) or {}).get("status") != "healthy"]
        try:
            self._answer(f"http://127.0.0.1:{self._execution_port}/execution/health")
        except (OSError, ValueError):
            unhealthy.append("execution_api")
        return unhealthy

    def _answer(self, url: str) -> dict[str, Any]:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - own loopback address
            document: dict[str, Any] = json.load(answer)
            return document

    def credentials(self, user: str = "admin") -> tuple[str, str]:
        """The user's name and password: `admin`, or `ci`, who may trigger runs and read."""
        return user, self._home.passwords()[user]

    def environment(self) -> dict[str, str]:
        """The environment of an Airflow process; nothing else comes from the caller."""
        return {
            "PATH": f"{self._bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": KUBERNETES_CONNECTION,
            "PYTHONPATH": str(self._repository),
            **self._environment,
        }


def _copy(database: Path, copy: Path) -> None:
    """Copy a database with what SQLite keeps beside it; the copy is whole or not there."""
    unfinished = copy.with_suffix(".copy")
    unfinished.unlink(missing_ok=True)
    with open_private(unfinished):
        pass
    with contextlib.closing(sqlite3.connect(database)) as source, contextlib.closing(sqlite3.connect(unfinished)) as to:
        source.backup(to)
    unfinished.rename(copy)
