"""The embedded stack: Kubernetes API and kubelet, Hub, object store and Airflow, as background processes.

Everything it makes lies in one folder; a second stack runs beside the first in another. Ports are chosen when the
folder is new and kept while they are free.
"""

import contextlib
import json
import os
import secrets
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from local import objects
from local.airflow.services import AirflowServices
from local.object_store import LocalObjectStore
from local.processes import Background, free_port
from tasks.contracts.base import read_contract
from tasks.contracts.site import Site

REPOSITORY = Path(__file__).resolve().parent.parent
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
DEFAULT_FOLDER = REPOSITORY / ".slipway" / "stack"
SERVICES = ("cluster", "hub", "object_store", "airflow")
READY_TIMEOUT_S = 60.0
UNVERIFIED = ssl._create_unverified_context()  # noqa: S323, SLF001 - whether our own loopback server answers

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What is chosen once per folder: ports and credentials. `stack.json`, readable by its owner alone."""

    ports: dict[str, int]
    credentials: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> "Settings":
        """Read them, or choose them when the folder is new."""
        path = folder / "stack.json"
        if path.exists():
            return cls(**json.loads(path.read_text()))
        ports: dict[str, int] = {}
        while len(ports) < len(SERVICES):
            port = free_port()
            if port not in ports.values():
                ports[SERVICES[len(ports)]] = port
        credentials = {"AWS_ACCESS_KEY_ID": "slipway", "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(24)}
        settings = cls(ports, credentials)
        settings.write(folder)
        return settings

    def write(self, folder: Path) -> None:
        """Keep them for the next `up`."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "stack.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            json.dump({"ports": self.ports, "credentials": self.credentials}, stream)


class Stack:
    """One embedded stack in one folder."""

    def __init__(
        self, folder: Path = DEFAULT_FOLDER, *, fixtures: Path | None = None, specs: Path | None = None
    ) -> None:
        """`fixtures` is what the Hub serves; `specs` is the folder that Airflow makes DAGs of."""
        self.folder = folder.resolve()
        self.settings = Settings.of(self.folder)
        self.kubeconfig, self.site_file = self.folder / "kubeconfig", self.folder / "site.yaml"
        self._fixtures = fixtures or REPOSITORY / "tests" / "fixtures" / "hub"
        self._specs = specs or REPOSITORY / "specs"
        self._python = ENVIRONMENTS / "local" / "bin" / "python"
        self._cluster = Background(self.folder / "cluster", "server-process")
        self._hub = Background(self.folder / "hub", "server-process")
        port = self.settings.ports["object_store"]
        self.object_store = LocalObjectStore(
            self.folder / "object-store", self._python, port, self.settings.credentials
        )
        self.airflow = AirflowServices(
            self.folder / "airflow",
            ENVIRONMENTS,
            REPOSITORY,
            self.settings.ports["airflow"],
            self._airflow_environment(),
        )

    def up(self, say: Say = print, *, airflow: bool = True) -> None:
        """Start what does not run, Airflow only if asked, and wait until all of it answers.

        Raises:
            RuntimeError: a part did not start; the message ends with its log.
        """
        self._keep_free_ports()
        self._start_cluster()
        self._start_hub()
        self.object_store.start(self.site()["object_store"]["bucket"])
        self._wait("cluster", self._cluster, f"https://127.0.0.1:{self.settings.ports['cluster']}/readyz")
        self._wait("hub", self._hub, f"{self.hub_endpoint}/api/models/slipway/demo-llama")
        say(f"cluster, hub and object store answer (kubeconfig {self.kubeconfig})")
        self._write_site()
        site = read_contract(Site, self.site(), str(self.site_file))
        objects.apply(site, self.kubeconfig, REPOSITORY / "k8s_manifests", self._own_objects())
        if not airflow:
            return
        self.airflow.prepare()
        self.airflow.start()
        self.airflow.wait_healthy(READY_TIMEOUT_S)
        say(f"Airflow answers at {self.airflow.address}")

    def down(self) -> None:
        """End every process of the stack, pods included. Kept: buckets, Airflow's history, the cluster's objects.

        Raises:
            RuntimeError: the pods did not end; everything else did.
        """
        self.airflow.stop()
        try:
            self._stop_pods()
        finally:
            self._cluster.stop()
            self._hub.stop()
            self.object_store.stop()

    def status(self) -> dict[str, bool]:
        """Which parts run."""
        return {
            "cluster": self._cluster.pid() is not None,
            "hub": self._hub.pid() is not None,
            "object_store": self.object_store.process.pid() is not None,
            "airflow": self.airflow.running(),
        }

    def site(self) -> dict[str, Any]:
        """sites/local.yaml with this stack's addresses."""
        site: dict[str, Any] = yaml.safe_load((REPOSITORY / "sites" / "local.yaml").read_text())
        site["object_store"]["endpoint"] = self.object_store.endpoint
        site["hub"] = {"endpoint": self.hub_endpoint}
        return site

    @property
    def hub_endpoint(self) -> str:
        """Where the Hub answers."""
        return f"http://127.0.0.1:{self.settings.ports['hub']}"

    def client_environment(self) -> dict[str, str]:
        """What a command needs in its environment to speak with this stack."""
        user, password = self.airflow.credentials()
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "SLIPWAY_SITE": str(self.site_file),
            "SLIPWAY_AIRFLOW": self.airflow.address,
            "SLIPWAY_AIRFLOW_USER": user,
            "SLIPWAY_AIRFLOW_PASSWORD": password,
            **self.settings.credentials,
        }

    def _airflow_environment(self) -> dict[str, str]:
        connection = {
            "conn_type": "aws",
            "login": self.settings.credentials["AWS_ACCESS_KEY_ID"],
            "password": self.settings.credentials["AWS_SECRET_ACCESS_KEY"],
            "extra": {"endpoint_url": self.object_store.endpoint, "region_name": "us-east-1"},
        }
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "SLIPWAY_SITE": str(self.site_file),
            "SLIPWAY_SPECS": str(self._specs),
            "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(connection),
        }

    def _keep_free_ports(self) -> None:
        """Choose another port for a part that is to start and whose port somebody else took meanwhile."""
        ports = dict(self.settings.ports)
        for name, runs in self.status().items():
            if not runs:
                ports[name] = free_port(ports[name])
        if ports != self.settings.ports:
            Settings(ports, self.settings.credentials).write(self.folder)
            self.__init__(self.folder, fixtures=self._fixtures, specs=self._specs)  # type: ignore[misc]

    def _start_cluster(self) -> None:
        arguments = {
            "--state": self.folder / "cluster",
            "--port": self.settings.ports["cluster"],
            "--kubeconfig": self.kubeconfig,
            "--context": "slipway-local",
            "--images": REPOSITORY / "local" / "images.yaml",
            "--envs": ENVIRONMENTS,
            "--repo": REPOSITORY,
        }
        flat = [str(part) for pair in arguments.items() for part in pair]
        self._cluster.start([str(self._python), "-m", "local.cluster", *flat], _bare_environment(), REPOSITORY)

    def _stop_pods(self) -> None:
        """Pods outlive a server that was killed, so this asks the folder and not whether the server runs."""
        state = self.folder / "cluster"
        if not state.exists():
            return
        command = [str(self._python), "-m", "local.cluster", "stop", "--state", str(state)]
        done = subprocess.run(
            command, env=_bare_environment(), cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the pods below {state} did not end:\n{(done.stdout + done.stderr)[-2000:]}")

    def _start_hub(self) -> None:
        arguments = ["--fixtures", str(self._fixtures), "--state", str(self.folder / "hub")]
        command = [str(self._python), "-m", "local.hub", *arguments, "--port", str(self.settings.ports["hub"])]
        self._hub.start(command, _bare_environment(), REPOSITORY)

    def _wait(self, name: str, process: Background, url: str) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and process.pid() is not None:
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1, context=UNVERIFIED):  # noqa: S310 - own loopback address
                return
            time.sleep(0.05)
        raise RuntimeError(
            f"the embedded {name} did not start at {url}; its log {process.log} ends with:\n{process.tail()}"
        )

    def _write_site(self) -> None:
        self.site_file.write_text(yaml.safe_dump(self.site(), sort_keys=False))

    def _own_objects(self) -> list[dict[str, Any]]:
        site, namespaces = self.site(), ("slipway", "slipway-serving")
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": self.settings.credentials}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"site.yaml": yaml.safe_dump(site, sort_keys=False)}}
        return [
            {**kind, "metadata": {"name": name, "namespace": namespace}}
            for namespace in namespaces
            for kind, name in ((secret, "slipway-s3"), (config, "slipway-site"))
        ]


def _bare_environment() -> dict[str, str]:
    """What the embedded servers need: nothing of the caller's, so that no token of a user reaches them."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
