"""A stack's ports and credentials."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from local.private_files import write_private
from local.processes import free_port

LISTENING = {"cluster": "cluster", "hub": "hub", "object_store": "object-store", "airflow": "api-server"}
"""The service that listens on each port."""


@dataclass(frozen=True)
class Settings:
    """Ports and credentials, chosen once per folder and kept in `stack.json`, which only its owner can read."""

    ports: dict[str, int]
    credentials: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> "Settings":
        """Read the settings, or choose them if the folder is new."""
        path = folder / "stack.json"
        if path.exists():
            return cls(**json.loads(path.read_text()))
        ports: dict[str, int] = {}
        for name in LISTENING:
            while (port := free_port()) in ports.values():
                pass
            ports[name] = port
        credentials = {"AWS_ACCESS_KEY_ID": "slipway", "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(24)}
        settings = cls(ports, credentials)
        settings.write(folder)
        return settings

    def write(self, folder: Path) -> None:
        """Store the settings for the next `up`."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        document = {"ports": self.ports, "credentials": self.credentials}
        write_private(folder / "stack.json", json.dumps(document))
