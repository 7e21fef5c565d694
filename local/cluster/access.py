"""The bearer token, and the kubeconfig files that carry it."""

import base64
import hmac
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Access:
    """Who may speak with the server: whoever knows the token. `port` is set once the server listens."""

    token: str
    certificate: str = ""
    port: int = 0

    @classmethod
    def of(cls, state: Path) -> "Access":
        """The state folder's token, made when the folder is new: kubeconfigs outlive the server."""
        file = state / "token"
        if not file.exists():
            write_private(file, secrets.token_urlsafe(32))
        return cls(file.read_text().strip())

    def allows(self, authorization: str) -> bool:
        """Whether an Authorization header carries the token."""
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode())

    def write(self, file: Path, *, context: str, namespace: str) -> None:
        """Write a kubeconfig that only its owner can read. JSON is YAML."""
        authority = base64.b64encode(self.certificate.encode()).decode()
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority-data": authority}
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": cluster}],
            "users": [{"name": context, "user": {"token": self.token}}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context, "namespace": namespace}}],
            "current-context": context,
        }
        write_private(file, json.dumps(config, indent=1))


def write_private(file: Path, text: str) -> None:
    """Write so that nobody else can read it and no reader sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text + "\n")
    partial.replace(file)
