"""The administrator's bearer token, and the kubeconfig files that carry a token."""

import base64
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Access:
    """The administrator's token and how to reach the server. `port` is set once the server listens."""

    token: str
    certificate: str = ""
    port: int = 0

    @classmethod
    def of(cls, state: Path) -> "Access":
        """The state folder's token, created with the folder and then kept, because kubeconfigs outlive the server."""
        file = state / "token"
        if not file.exists():
            write_private(file, secrets.token_urlsafe(32))
        return cls(file.read_text().strip())

    def is_admin(self, token: str) -> bool:
        """Whether this is the administrator's token."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def write(self, file: Path, *, context: str, namespace: str, user: Mapping[str, str] | None = None) -> None:
        """Write a kubeconfig that only its owner can read, for the administrator or for `user`. JSON is YAML."""
        authority = base64.b64encode(self.certificate.encode()).decode()
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority-data": authority}
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": cluster}],
            "users": [{"name": context, "user": user or {"token": self.token}}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context, "namespace": namespace}}],
            "current-context": context,
        }
        write_private(file, json.dumps(config, indent=1))


def write_private(file: Path, text: str) -> None:
    """Write a file atomically; nobody but its owner can ever read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
    partial.replace(file)
