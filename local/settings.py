"""A stack's ports, credentials and signing key."""

import fcntl
import json
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from local.private_files import open_private, write_private
from local.processes import free_port

LISTENING = {
    "cluster": "cluster",
    "hub": "hub",
    "object_store": "object-store",
    "airflow": "api-server",
    "execution_api": "execution-api",
}
"""The service that listens on each port."""


def with_ports(ports: dict[str, int], more: Iterable[str]) -> dict[str, int]:
    """The ports, and a free one for each name of `more`."""
    chosen = dict(ports)
    for name in more:
        while (port := free_port()) in chosen.values():
            pass
        chosen[name] = port
    return chosen


@dataclass(frozen=True)
class Settings:
    """What is chosen once per folder and kept in `stack.json`, which only its owner can read."""

    ports: dict[str, int]
    credentials: dict[str, str]
    signing_key: str = field(default="", repr=False)
    """The private key that publish signs with, in PEM. Folders of older versions have none, and unsigned releases."""

    @classmethod
    def of(cls, folder: Path) -> "Settings":
        """Read the settings, or choose them if the folder is new. One process chooses at a time."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # not the lock of `up`, which takes minutes: `status` does not wait for it
        with open_private(folder / "stack.json.lock") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            return cls._read_or_chosen(folder)

    @classmethod
    def _read_or_chosen(cls, folder: Path) -> "Settings":
        path = folder / "stack.json"
        if path.exists():
            settings = cls(**json.loads(path.read_text()))
            if missing := LISTENING.keys() - settings.ports.keys():  # in a folder of an older version
                settings = replace(settings, ports=with_ports(settings.ports, missing))
                settings.write(folder)
            return settings
        ports = with_ports({}, LISTENING)
        credentials = {"AWS_ACCESS_KEY_ID": "slipway", "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(24)}
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        settings = cls(ports, credentials, key.decode())
        settings.write(folder)
        return settings

    def write(self, folder: Path) -> None:
        """Store the settings for the next `up`."""
        write_private(folder / "stack.json", json.dumps(asdict(self)))

    @property
    def public_key(self) -> str:
        """The public key in PEM of a stack that signs."""
        key = serialization.load_pem_private_key(self.signing_key.encode(), None).public_key()
        return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
