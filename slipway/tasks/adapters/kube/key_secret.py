"""The Secret with the hashes of API keys. Every change keeps what another client wrote meanwhile."""

import base64
from collections.abc import Callable
from typing import Any

from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.kube_errors import StaleError
from slipway.tasks.contracts.api_keys import MOST_KEYS, OWN_KEY_VARIABLE, ApiKey, read_keys
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.authentication import KEYS_FILE

ATTEMPTS = 5
NEW_LINE = "\n"
Document = dict[str, Any]


class KeySecret:
    """The file of keys in a Secret of the serving namespace. Lines that are no key stay as they are."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name

    def keys(self) -> list[ApiKey]:
        """All keys, in the order in which they were added."""
        return read_keys(self._read()[0])

    def add(self, key: ApiKey) -> None:
        """Add a key.

        Raises:
            InputError: there are as many as a front compares.
        """

        def added(text: str) -> str:
            if len(read_keys(text)) >= MOST_KEYS:
                raise InputError(
                    f"Secret {self._name} is full", expected=f"at most {MOST_KEYS} keys", remedy="Revoke keys first."
                )
            return f"{text}{'' if not text or text.endswith(NEW_LINE) else NEW_LINE}{key.line}"

        self._change(added)

    def remove(self, chosen: Callable[[ApiKey], bool]) -> list[ApiKey]:
        """Remove the chosen keys and return them."""
        removed: list[ApiKey] = []

        def rest(text: str) -> str:
            lines = [(line, read_keys(line)) for line in text.split(NEW_LINE)]
            removed[:] = [key for _, keys in lines for key in keys if chosen(key)]
            return NEW_LINE.join(line for line, keys in lines if not any(chosen(key) for key in keys))

        self._change(rest)
        return removed

    def _change(self, change: Callable[[str], str]) -> None:
        for _ in range(ATTEMPTS):
            text, version = self._read()
            if (changed := change(text)) == text:
                return
            try:
                self._write(changed, version)
            except StaleError:
                continue
            return
        raise UnavailableError(
            f"Secret {self._name} was changed by others {ATTEMPTS} times", remedy="Run the command again."
        )

    def _read(self) -> tuple[str, str | None]:
        """The file's text, and the Secret's resource version; None where there is no Secret."""
        secret = self._cluster.get("Secret", self._name)
        if secret is None:
            return "", None
        data = (secret.get("data") or {}).get(KEYS_FILE, "")
        return base64.b64decode(data).decode(errors="replace"), secret["metadata"]["resourceVersion"]

    def _write(self, text: str, version: str | None) -> None:
        document = _secret(self._name, self._cluster.namespace, {KEYS_FILE: text})
        if version is None:
            self._cluster.create(document)
            return
        document["metadata"]["resourceVersion"] = version
        self._cluster.apply([document])


def put_own_key(cluster: Cluster, name: str, namespace: str, secret: str) -> None:
    """Write the key that steps send."""
    cluster.apply([_secret(name, namespace, {OWN_KEY_VARIABLE: secret})])


def _secret(name: str, namespace: str, texts: dict[str, str]) -> Document:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data}
