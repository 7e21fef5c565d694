"""Airflow's settings for one user on one machine, with short waits. Only the owner can read the files."""

import base64
import configparser
import io
import json
import os
import secrets
import shutil
from pathlib import Path

import yaml

from local.private_files import write_private

USERS = {"admin": "admin", "ci": "user"}
"""Name and role. A `user` may trigger and read, but not configure."""

LOCK_WAIT_S = 60
"""How long a process of Airflow waits while another one writes to the database. Python's own default, 5 s, is less than
a write takes on a busy machine: whoever waited that long got an error, and a person `500 Internal Server Error`."""


SETTINGS = Path("k8s_manifests/airflow/settings.yaml")
"""What is the same wherever Airflow runs Slipway's DAGs."""


def database_address(database: Path) -> str:
    """The address of a database for Airflow."""
    return f"sqlite:///{database}?timeout={LOCK_WAIT_S}"


class AirflowHome:
    """The folder AIRFLOW_HOME: configuration, passwords, database and logs."""

    def __init__(self, folder: Path, repository: Path, port: int, execution_port: int) -> None:
        """`port` is that of the API and the UI, `execution_port` that of the API which tasks use."""
        self.folder, self._repository, self._port, self._execution_port = folder, repository, port, execution_port
        self.passwords_file = folder / "passwords.json"
        self.configuration_file = folder / "airflow.cfg"

    def write(self) -> None:
        """Write every file. Existing secrets and passwords are kept."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        config = self.folder / "config"
        config.mkdir(exist_ok=True, mode=0o700)
        shutil.copyfile(Path(__file__).with_name("airflow_local_settings.py"), config / "airflow_local_settings.py")
        passwords = self.passwords() if self.passwords_file.exists() else {}
        write_private(self.passwords_file, json.dumps({name: secrets.token_urlsafe(18) for name in USERS} | passwords))
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_dict(yaml.safe_load((self._repository / SETTINGS).read_text())["config"])
        parser.read_dict(self._options(self._secrets()))
        text = io.StringIO()
        parser.write(text)
        # Airflow itself reads its file with interpolation
        write_private(self.configuration_file, text.getvalue().replace("%", "%%"))

    def passwords(self) -> dict[str, str]:
        """Password by user."""
        passwords: dict[str, str] = json.loads(self.passwords_file.read_text())
        return passwords

    def _secrets(self) -> dict[str, str]:
        path = self.folder / "secrets.json"
        if not path.exists():
            chosen = {
                "fernet_key": base64.urlsafe_b64encode(os.urandom(32)).decode(),
                "jwt_secret": secrets.token_urlsafe(48),
                "secret_key": secrets.token_urlsafe(48),
            }
            write_private(path, json.dumps(chosen))
        kept: dict[str, str] = json.loads(path.read_text())
        return kept

    def _options(self, secret: dict[str, str]) -> dict[str, dict[str, str | int | float]]:
        address = f"http://127.0.0.1:{self._port}"
        return {
            "core": {
                "dags_folder": str(self._repository / "dags"),
                "plugins_folder": str(self._repository / "plugins"),
                "executor": "LocalExecutor",
                # tasks mostly wait for pods, so they may be more than the CPUs; each takes memory for two processes
                "parallelism": 4,
                "execution_api_server_url": f"http://127.0.0.1:{self._execution_port}/execution/",
                "fernet_key": secret["fernet_key"],
                "simple_auth_manager_users": ",".join(f"{name}:{role}" for name, role in USERS.items()),
                "simple_auth_manager_passwords_file": str(self.passwords_file),
            },
            "database": {"sql_alchemy_conn": database_address(self.folder / "airflow.db")},
            # with the shared setting's pause of 0.1 s the scheduler takes a quarter of a CPU, which the steps need here
            "scheduler": {"scheduler_idle_sleep_time": 0.4},
            # there are six small files, and a second process would take memory for nothing
            "dag_processor": {"parsing_processes": 1},
            "api": {
                "host": "127.0.0.1",
                "port": self._port,
                "base_url": address,
                # one user; a second process would take another 250 MB
                "workers": 1,
                "secret_key": secret["secret_key"],
            },
            "api_auth": {"jwt_secret": secret["jwt_secret"]},
            "logging": {
                "base_log_folder": str(self.folder / "logs"),
                # Airflow sets modes of its own, whatever the umask
                "file_task_handler_new_folder_permissions": "0o700",
                "file_task_handler_new_file_permissions": "0o600",
            },
        }
