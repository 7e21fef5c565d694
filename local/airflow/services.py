"""Starts and stops Airflow: api-server, scheduler, dag-processor and triggerer, each a background process."""

import contextlib
import hashlib
import json
import os
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local.airflow.settings import AirflowHome, write_private
from local.processes import Background

COMMANDS: dict[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    # task logs are files on this machine, so that nobody has to serve them from another port
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
STOP_TIMEOUT_S = {"scheduler": 12.0, "api-server": 5.0, "dag-processor": 5.0, "triggerer": 2.0}
"""A triggerer waits 10 s for its triggers, and need not: all that it knows is in the database."""
HEALTHY_PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
POLL_S = 0.1
KUBERNETES_CONNECTION = json.dumps({"conn_type": "kubernetes"})


class AirflowServices:
    """Airflow in one folder, over the repository's own DAGs and plugins. Listens on a loopback port."""

    def __init__(self, folder: Path, envs: Path, repo: Path, port: int, environment: dict[str, str]) -> None:
        """`environment` is added to that of every process: SLIPWAY_SITE, KUBECONFIG, AIRFLOW_CONN_AWS_DEFAULT, ..."""
        self.folder, self._repository = folder, repo
        self.address = f"http://127.0.0.1:{port}"
        self._bin = envs / "airflow" / "bin"
        self._lock = repo / "requirements" / "airflow.lock"
        self._home = AirflowHome(folder, repo, port)
        self._environment = environment
        self._processes = {name: Background(folder / "processes", name) for name in COMMANDS}

    def prepare(self) -> None:
        """Write the configuration; make or migrate the database when it is not of this Airflow.

        Raises:
            RuntimeError: the migration failed; the message ends with what it printed.
        """
        self._home.write()
        stamp, wanted = self.folder / "migrated-for", hashlib.sha256(self._lock.read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text() == wanted and (self.folder / "airflow.db").exists():
            return
        done = subprocess.run(
            [str(self._bin / "airflow"), "db", "migrate"],
            env=self.environment(),
            cwd=self._repository,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"airflow db migrate ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
            )
        write_private(stamp, wanted)

    def start(self) -> None:
        """Start the services that do not run. They outlive this process."""
        for name, process in self._processes.items():
            process.start([str(self._bin / "airflow"), *COMMANDS[name]], self.environment(), self._repository)

    def wait_healthy(self, timeout_s: float) -> None:
        """Wait until every service says that it is well.

        Raises:
            RuntimeError: one ended, or is not well after `timeout_s`; the message ends with its log.
        """
        deadline = time.monotonic() + timeout_s
        while (unwell := self._unwell()) and time.monotonic() < deadline:
            ended = [name for name, process in self._processes.items() if process.pid() is None]
            if ended:
                raise RuntimeError(f"Airflow's {ended[0]} ended:\n{self._processes[ended[0]].tail()}")
            time.sleep(POLL_S)
        if unwell:
            process = self._processes.get(unwell[0].replace("_", "-"), self._processes["api-server"])
            raise RuntimeError(
                f"Airflow at {self.address}: {', '.join(unwell)} not healthy after {timeout_s:.0f} s; "
                f"its log {process.log} ends with:\n{process.tail()}"
            )

    def stop(self) -> None:
        """End every service and whatever it started. Nothing when none runs."""
        # the scheduler's tasks end with it: they delete their pods, and report to the api-server while it is there
        self._stop("scheduler")
        with ThreadPoolExecutor(len(self._processes)) as pool:
            list(pool.map(self._stop, self._processes))

    def running(self) -> bool:
        """Whether every service runs."""
        return all(process.pid() is not None for process in self._processes.values())

    def credentials(self, user: str = "admin") -> tuple[str, str]:
        """A user and the password: `admin`, or `ci`, who may trigger runs and read."""
        return user, self._home.passwords()[user]

    def environment(self) -> dict[str, str]:
        """What an Airflow process needs, such as `airflow dags test`; nothing else of the caller's environment."""
        return {
            "PATH": f"{self._bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": KUBERNETES_CONNECTION,
            "PYTHONPATH": str(self._repository),
            **self._environment,
        }

    def _stop(self, name: str) -> None:
        self._processes[name].stop(STOP_TIMEOUT_S[name])

    def _unwell(self) -> list[str]:
        with contextlib.suppress(OSError, ValueError):
            url = f"{self.address}/api/v2/monitor/health"
            with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - own loopback address
                health = json.load(answer)
            return [part for part in HEALTHY_PARTS if (health.get(part) or {}).get("status") != "healthy"]
        return ["api_server"]
