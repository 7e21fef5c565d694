"""Reads a kubeconfig: the API server, how to trust it, and the user's credentials.

It reads what the Kubernetes client for Python reads. That client takes two seconds of CPU to import, too long for
`slipway ask`: docs/decisions/0010.
"""

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from slipway.tasks.adapters.hub.header_token import header_token
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.document_files import read_document

DEFAULT_FILE = Path("~/.kube/config")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_TIMEOUT_S = 60.0
QUOTED_CHARS = 256
PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}
"""Sections of the file, and their entries that are paths relative to the file."""

KINDS: Mapping[type, str] = {dict: "a mapping", list: "a list", str: "text", int: "a number", bool: "a boolean"}

Entry = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Access:
    """How to send a request to an API server. `headers` hold credentials."""

    server: str
    tls: ssl.SSLContext
    headers: Mapping[str, str] = field(repr=False)
    server_name: str | None = None
    """The name in the server's certificate, if it differs from the host of `server`."""
    proxy: str | None = None


def access(files: Sequence[Path], context: str | None) -> Access:
    """Read the files as kubectl does: the first file with an entry wins. A pod without files uses its service account.

    Args:
        files: kubeconfig files; some may be missing.
        context: name of the context; None is the current one.

    Raises:
        InputError: there is no kubeconfig, no such context, or an entry that cannot be used.
        UnavailableError: the credential plugin failed.
    """
    existing = [path for each in files if (path := each.expanduser()).is_file()]
    if not existing and (SERVICE_ACCOUNT / "token").is_file():
        return _of_service_account()
    if not existing:
        names = ", ".join(map(str, files))
        raise InputError(f"no kubeconfig: {names} does not exist", remedy="Set KUBECONFIG, or give --host HOST:PORT.")
    sections, current = _merged(existing)
    where = ", ".join(map(str, existing))
    chosen = _entry(sections, "contexts", context or current, where)
    cluster = _entry(sections, "clusters", chosen.get("cluster"), where)
    user = _entry(sections, "users", chosen.get("user"), where) if chosen.get("user") else {}
    return _access(cluster, user)


def files_of(kubeconfig: Path | None) -> list[Path]:
    """The files that KUBECONFIG lists; the default file if it is unset."""
    return [Path(name) for name in str(kubeconfig or DEFAULT_FILE).split(os.pathsep) if name]


def _of_service_account() -> Access:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = {"server": server, "certificate-authority": str(SERVICE_ACCOUNT / "ca.crt")}
    return _access(cluster, {"tokenFile": str(SERVICE_ACCOUNT / "token")})


def _merged(files: Sequence[Path]) -> tuple[dict[str, dict[str, Entry]], str | None]:
    sections: dict[str, dict[str, Entry]] = {section: {} for section in PATHS}
    current = None
    for file in files:
        document = read_document(file)
        if not isinstance(document, dict):
            raise InputError(
                f"{file} is not a kubeconfig", expected="clusters, users and contexts", remedy="Correct KUBECONFIG."
            )
        current = current or document.get("current-context") or None
        for section, paths in PATHS.items():
            for item in _typed(document.get(section) or [], list, f"{section} in {file}"):
                where = f"an entry under {section} in {file}"
                name = _typed(_typed(item, dict, where).get("name"), str, f"the name of {where}")
                entry = dict(_typed(item.get(section.removesuffix("s")) or {}, dict, where))
                entry |= {
                    key: str(file.parent / _typed(entry[key], str, f"{key} of {where}"))
                    for key in paths
                    if entry.get(key)
                }
                if "exec" in entry:
                    entry["exec"] = _plugin(entry["exec"], file, f"exec of {where}")
                sections[section].setdefault(name, entry)
    return sections, current


def _plugin(plugin: Any, file: Path, where: str) -> Entry:
    """A credential plugin whose command is relative to the file, as kubectl reads it."""
    entry: dict[str, Any] = _typed(plugin, dict, where)
    for name in ("apiVersion", "command"):
        _typed(entry.get(name), str, f"{name} in {where}")
    for name, kind in (("args", str), ("env", dict)):
        for each in _typed(entry.get(name) or [], list, f"{name} in {where}"):
            _typed(each, kind, f"an item of {name} in {where}")
    for each in entry.get("env") or []:
        for name in ("name", "value"):
            _typed(each.get(name), str, f"{name} of an item of env in {where}")
    return entry | {"command": str(file.parent / entry["command"])} if os.sep in entry["command"] else entry


def _typed(value: Any, kind: type[T], what: str) -> T:
    """The value, which may be a secret and is not shown.

    Raises:
        InputError: it is not of this kind.
    """
    if not isinstance(value, kind):
        kind_name = "nothing" if value is None else KINDS.get(type(value), "another value")
        raise InputError(what, found=kind_name, expected=KINDS[kind], remedy="Correct the kubeconfig.")
    return value


def _entry(sections: Mapping[str, Mapping[str, Entry]], section: str, name: str | None, where: str) -> Entry:
    if name is None:
        raise InputError(f"{where} has no current-context", remedy="Run `kubectl config use-context NAME`.")
    if _typed(name, str, f"the name of an entry of {section} in {where}") not in sections[section]:
        raise InputError(
            f"{where} has no entry {name!r} under {section}",
            found=", ".join(sections[section]) or "none",
            remedy="Correct the file, or kubernetes.context in the site file.",
        )
    return sections[section][name]


def _access(cluster: Entry, user: Entry) -> Access:
    if "auth-provider" in user:
        raise InputError(
            f"the kubeconfig logs in with auth-provider {_provider(user)!r}, which Kubernetes 1.26 removed",
            remedy="Use the provider's exec plugin.",
        )
    user = {**user, **_from_plugin(user["exec"], cluster)} if "exec" in user else user
    name, proxy = cluster.get("tls-server-name"), cluster.get("proxy-url")
    server = _typed(cluster.get("server"), str, "server of the kubeconfig's cluster")
    return Access(server.rstrip("/"), _tls(cluster, user), _headers(user), name, proxy)


def _headers(user: Entry) -> dict[str, str]:
    if token := _token(user):
        return {"Authorization": f"Bearer {token}"}
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _token(user: Entry) -> str:
    source = "the token in the kubeconfig"
    if not user.get("tokenFile"):
        return header_token(_typed(user.get("token") or "", str, source), source)
    file = Path(user["tokenFile"])
    try:
        return header_token(file.read_text(encoding="utf-8"), f"the token in {file}")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file}, tokenFile in the kubeconfig, cannot be read",
            found=getattr(error, "strerror", None) or "no UTF-8 text",
            expected="a file with a token",
            remedy="Log in again, or correct the kubeconfig.",
        ) from error


def _provider(user: Entry) -> Any:
    provider = user["auth-provider"]
    return provider.get("name") if isinstance(provider, Mapping) else None


def _tls(cluster: Entry, user: Entry) -> ssl.SSLContext:
    try:
        authority = cluster.get("certificate-authority-data")
        pem = base64.b64decode(authority).decode() if authority else None
        tls = ssl.create_default_context(cafile=None if pem else cluster.get("certificate-authority"), cadata=pem)
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        _load_client_certificate(tls, user)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            "a certificate in the kubeconfig cannot be read", found=error, remedy="Correct the kubeconfig."
        ) from error
    return tls


def _load_client_certificate(tls: ssl.SSLContext, user: Entry) -> None:
    """Add the user's certificate and key. OpenSSL only reads files, and only the owner can read these."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = (_file_of(user, name, Path(folder) / name) for name in ("client-certificate", "client-key"))
        if certificate:
            tls.load_cert_chain(certificate, key)


def _file_of(user: Entry, name: str, copy: Path) -> Path | None:
    """The file of an entry of the user; data in the kubeconfig itself is copied to a file."""
    if data := user.get(f"{name}-data"):
        copy.write_bytes(base64.b64decode(data))
        return copy
    return Path(user[name]) if user.get(name) else None


def _from_plugin(plugin: Entry, cluster: Entry) -> dict[str, str]:
    """Run a credential plugin (client.authentication.k8s.io) and return its credentials as entries of a user."""
    version, command = plugin["apiVersion"], plugin["command"]
    spec: dict[str, Any] = {"interactive": sys.stdin.isatty() and plugin.get("interactiveMode") != "Never"}
    if plugin.get("provideClusterInfo"):
        named = ("server", "certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        spec["cluster"] = {name: cluster[name] for name in named if name in cluster}
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    added = {each["name"]: each["value"] for each in plugin.get("env") or []}
    environment = {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(request)}
    try:
        done = subprocess.run(
            [command, *(plugin.get("args") or [])],
            env=environment,
            stdout=subprocess.PIPE,
            timeout=EXEC_TIMEOUT_S,
            check=True,
        )
        status = dict(json.loads(done.stdout)["status"])
    except FileNotFoundError as error:
        hint = " ".join(str(plugin.get("installHint") or "Install it.").split())[:QUOTED_CHARS]
        raise InputError(f"the kubeconfig logs in with {command}, which is not installed", remedy=hint) from error
    except (subprocess.SubprocessError, OSError, ValueError, KeyError, TypeError) as error:
        raise UnavailableError(
            f"the kubeconfig's login command {command} failed",
            found=str(error).rstrip("."),
            expected="an ExecCredential with a status",
            remedy="Log in again.",
        ) from error
    certificate = {
        f"{name}-data": base64.b64encode(status[key].encode()).decode()
        for name, key in (("client-certificate", "clientCertificateData"), ("client-key", "clientKeyData"))
        if status.get(key)
    }
    return certificate | ({"token": status["token"]} if status.get("token") else {})
