"""The embedded stack: Kubernetes API and kubelet, Hub, object store and Airflow, as background processes.

All its files are in one folder, which only its owner can read; another folder holds another stack. Ports are chosen
when the folder is new and then kept, unless another program takes one.
"""

import compileall
import fcntl
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from local import client_file
from local.airflow import services as airflow_services
from local.airflow.services import AirflowServices
from local.cluster import NOT_ENFORCED
from local.cluster.node.confinement import DESCRIPTIONS
from local.environments import ENVIRONMENTS, SetupError, wait_for
from local.object_store.service import LocalObjectStore
from local.patience import Patience
from local.private_files import make_private, open_private, write_private
from local.processes import free_port
from local.settings import LISTENING, Settings
from local.supervisor import Service, State, Supervisor
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.site.store_access import IDENTITY_VARIABLE
from slipway.tasks.document_files import read_document

REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_FOLDER = REPOSITORY / ".slipway" / "stack"
AIRFLOW_ACCOUNT = "slipway-airflow"
SIGNING_SECRET = "slipway-signing"  # noqa: S105 - a name
CLUSTER_NAME = "slipway-local"
"""Name of the cluster's node and of its kubeconfig's context."""
SERVERS = {"cluster": 3, "hub": 3, "object-store": 1}
"""How many seconds each server may take to stop; Airflow's are in airflow_services."""
STOPPED_FIRST = "scheduler"
POLL_S = 0.1
UNVERIFIED = ssl._create_unverified_context()  # noqa: S323, SLF001 - only checks that our loopback server answers

Say = Callable[[str], None]


class Stack:
    """One embedded stack in one folder."""

    def __init__(
        self,
        folder: Path = DEFAULT_FOLDER,
        *,
        fixtures: Path | None = None,
        specs: Path | None = None,
        hub: str | None = None,
        images: Path | None = None,
        site: Path | None = None,
        airflow_environment: Mapping[str, str] | None = None,
        cluster_options: Sequence[str] = (),
    ) -> None:
        """Choose the stack's folders, its Hub, and what its pods and its Airflow run.

        Args:
            folder: everything that the stack writes.
            fixtures: the folder that the stack's own Hub serves.
            specs: the folder that Airflow builds DAGs from.
            hub: address of another Hub for releases, such as https://huggingface.co; the stack's own when absent.
            images: another table of images for the cluster (local/cluster/README.md).
            site: another site than sites/local.yaml, for a cluster that has more.
            airflow_environment: further variables of Airflow's processes, such as AIRFLOW__SCHEDULER__...
            cluster_options: further options of the cluster's server.
        """
        self.folder = folder.resolve()
        self.settings = Settings.of(self.folder)
        self.kubeconfig, self.site_file = self.folder / "kubeconfig", self.folder / "site.yaml"
        self._airflow_kubeconfig = self.folder / "airflow.kubeconfig"
        self._fixtures = fixtures or REPOSITORY / "tests" / "fixtures" / "hub"
        self._specs, self._other_hub = specs or REPOSITORY / "specs", hub
        self._images = images or REPOSITORY / "local" / "images.yaml"
        self._site = site or REPOSITORY / "sites" / "local.yaml"
        self._cluster_options = tuple(cluster_options)
        self._more_of_airflow = dict(airflow_environment or {})
        self._python = ENVIRONMENTS / "local" / "bin" / "python"
        self.supervisor = Supervisor(
            self.folder, self._python, REPOSITORY, {**SERVERS, **airflow_services.STOP_TIMEOUTS_S}
        )

    @property
    def object_store(self) -> LocalObjectStore:
        """The object store at its current port."""
        port = self.settings.ports["object_store"]
        return LocalObjectStore(self.folder / "object-store", self._python, port, self.settings.credentials)

    @property
    def airflow(self) -> AirflowServices:
        """Airflow at its current ports."""
        ports = self.settings.ports["airflow"], self.settings.ports["execution_api"]
        return AirflowServices(self.folder / "airflow", ENVIRONMENTS, REPOSITORY, ports, self.airflow_environment())

    def up(self, say: Say = print, *, airflow: bool = True) -> None:
        """Start or restart every service that is down or has other settings, and wait until all of them answer.

        Args:
            say: receives a line about each thing done.
            airflow: whether to start Airflow too.

        Raises:
            PipelineError: a part did not start.
        """
        with self._alone():
            make_private(self.folder)
            if left_over := self.supervisor.end_left_over():
                say(f"the supervisor had been killed: stopped the {left_over} processes that it left behind")
            self._settle_ports(say, airflow=airflow)
            self.supervisor.start([self._cluster(), self._hub(), self.object_store.service(REPOSITORY)])
            write_private(self.site_file, yaml.safe_dump(self.site(), sort_keys=False))
            with ThreadPoolExecutor(1) as beside:
                prepared = beside.submit(self._prepare_airflow) if airflow else None
                self._start_servers(say)
            if prepared:
                prepared.result()
                self._start_airflow()
                say(f"Airflow answers at {self.airflow.address}")
            _wait_for_environments("tasks", "triton", "front")
            client_file.write_running(self.folder, self.client_environment(airflow=airflow))

    def _start_servers(self, say: Say) -> None:
        """Wait for cluster, Hub and object store, and prepare them for the site."""
        # pods run the checkout's code from a read-only root, where Python cannot store bytecode
        compileall.compile_dir(REPOSITORY / "slipway" / "tasks", quiet=2)
        self._wait("cluster", f"https://127.0.0.1:{self.settings.ports['cluster']}/readyz")
        self._wait("hub", f"{self.hub_endpoint}/api/models/slipway/demo-llama")
        self._wait("object-store", self.object_store.endpoint, answers=403)
        say(f"cluster, hub and object store answer (kubeconfig {self.kubeconfig})")
        server = json.loads((self.folder / "cluster" / "server.json").read_text())
        say(f"pods: {DESCRIPTIONS[server['confinement']]}")
        say(NOT_ENFORCED)
        self._prepare_site()

    def down(self) -> None:
        """Stop every process of the stack, including pods. Buckets, Airflow's history and the cluster's objects stay.

        Raises:
            PipelineError: the pods or the cluster's server did not end.
        """
        with self._alone():
            client_file.write_stopped(self.folder)
            if self.supervisor.answers():
                # its tasks stop with it: they delete their pods, and report to the api-server while that still runs
                with suppress(PipelineError):  # it is killed with all that is left
                    self.supervisor.stop([STOPPED_FIRST])
                self.supervisor.request_stop([*SERVERS, *airflow_services.STOP_TIMEOUTS_S])
                self.supervisor.stop(["cluster"])
            try:
                self._stop_pods()
            finally:
                self.supervisor.end()

    def status(self) -> dict[str, State]:
        """The state of each service."""
        return self.supervisor.states()

    def site(self) -> dict[str, Any]:
        """The site that it was given, with this stack's addresses and its signing key."""
        site: dict[str, Any] = read_document(self._site)
        site["object_store"]["endpoint"] = self.object_store.endpoint
        site["hub"] = {"endpoint": self._other_hub or self.hub_endpoint}
        if self.settings.signing_key:
            site["signing"] = {"key_secret": SIGNING_SECRET, "public_keys": [self.settings.public_key]}
        return site

    def serve_gateway(self) -> tuple[str, int]:
        """Open the Gateway of the site's routes, which stays until it is deleted; return its address and port.

        Raises:
            PipelineError: it does not serve.
        """
        from local import objects  # noqa: PLC0415 - as in _prepare_site

        site = read_contract(Site, self.site(), str(self.site_file))
        return objects.serve_gateway(site, self.kubeconfig, REPOSITORY / "local" / "gateway.yaml")

    @property
    def hub_endpoint(self) -> str:
        """The address of the stack's own Hub."""
        return f"http://127.0.0.1:{self.settings.ports['hub']}"

    def client_environment(self, *, airflow: bool = True) -> dict[str, str]:
        """The environment variables that a client of this stack needs; `airflow`: those of Airflow too."""
        environment = {"KUBECONFIG": str(self.kubeconfig), "SLIPWAY_SITE": str(self.site_file)}
        if airflow:
            user, password = self.airflow.credentials()
            environment["SLIPWAY_AIRFLOW"] = self.airflow.address
            environment |= {"SLIPWAY_AIRFLOW_USER": user, "SLIPWAY_AIRFLOW_PASSWORD": password}
        return environment | self.settings.credentials

    def airflow_environment(self) -> dict[str, str]:
        """The environment variables that an Airflow needs for this stack, besides its own."""
        connection = {
            "conn_type": "aws",
            "login": self.settings.credentials["AWS_ACCESS_KEY_ID"],
            "password": self.settings.credentials["AWS_SECRET_ACCESS_KEY"],
            "extra": {"endpoint_url": self.object_store.endpoint, "region_name": "us-east-1"},
        }
        return {
            "KUBECONFIG": str(self._airflow_kubeconfig),
            "SLIPWAY_SITE": str(self.site_file),
            "SLIPWAY_SPECS": str(self._specs),
            IDENTITY_VARIABLE: AIRFLOW_ACCOUNT,
            "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(connection),
            **self._more_of_airflow,
        }

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the folder's lock, so that one `up` or `down` runs at a time."""
        with open_private(self.folder / "lock") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            self.settings = Settings.of(self.folder)  # whoever had it may have chosen other ports
            yield

    def _settle_ports(self, say: Say, *, airflow: bool) -> None:
        """Choose another port for a stopped service that starts now, and whose port another program has taken.

        Running services that use the old port are restarted, because their description contains it.
        """
        ports, states = dict(self.settings.ports), self.status()
        for name, service in LISTENING.items():
            if not states[service].runs and (airflow or service in SERVERS):
                ports[name] = free_port(ports[name])
            if ports[name] != self.settings.ports[name]:
                say(f"port {self.settings.ports[name]} of {service} is taken by another program: now {ports[name]}")
        if ports != self.settings.ports:
            self.settings = replace(self.settings, ports=ports)
            self.settings.write(self.folder)

    def _prepare_site(self) -> None:
        # imported here: the Kubernetes client takes two seconds, and looking up addresses does not need it
        from local import objects  # noqa: PLC0415

        text, manifests = self.site_file.read_text(), REPOSITORY / "k8s_manifests"
        site = read_contract(Site, self.site(), str(self.site_file))
        objects.prepare(site, text, self.kubeconfig, manifests, self.settings)
        namespace = site.kubernetes.pipeline_namespace
        objects.write_kubeconfig(self.kubeconfig, namespace, AIRFLOW_ACCOUNT, self._airflow_kubeconfig)

    def _prepare_airflow(self) -> None:
        _wait_for_environments("airflow")
        self.airflow.prepare()

    def _start_airflow(self) -> None:
        airflow = self.airflow
        depends_on = f"{self.site_file.read_text()}\n{self.settings.ports}"
        self.supervisor.start(airflow.services(depends_on))
        patience = self._patience(airflow_services.COMMANDS)
        while unhealthy := airflow.unhealthy_parts():
            gave_up = [name for name in airflow_services.COMMANDS if self.status()[name].gave_up]
            if gave_up or patience.is_over():
                service = gave_up[0] if gave_up else unhealthy[0].replace("_", "-")
                service = service if service in airflow_services.COMMANDS else "api-server"
                raise self._not_started(f"Airflow at {airflow.address}", service, f"{', '.join(unhealthy)} not healthy")
            time.sleep(POLL_S)

    def _cluster(self) -> Service:
        arguments = {
            "--state": self.folder / "cluster",
            "--port": self.settings.ports["cluster"],
            "--kubeconfig": self.kubeconfig,
            "--name": CLUSTER_NAME,
            "--images": self._images,
            "--gateway": ENVIRONMENTS / "front" / "bin" / "envoy",
        }
        flat = [str(part) for pair in arguments.items() for part in pair]
        flat += ["--place", f"ENVS={ENVIRONMENTS}", "--place", f"REPO={REPOSITORY}", *self._cluster_options]
        return Service("cluster", (str(self._python), "-m", "local.cluster", *flat), _bare_environment(), REPOSITORY)

    def _stop_pods(self) -> None:
        """Stop the pods of the folder, whether the server runs or not: pods outlive a server that was killed."""
        state = self.folder / "cluster"
        if not state.exists():
            return
        command = [str(self._python), "-m", "local.cluster", "stop", "--state", str(state)]
        done = subprocess.run(
            command, env=_bare_environment(), cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PipelineError(f"the pods in {state} did not end", found=(done.stdout + done.stderr)[-2000:])

    def _hub(self) -> Service:
        arguments = ("--fixtures", str(self._fixtures), "--state", str(self.folder / "hub"))
        command = (str(self._python), "-m", "local.hub", *arguments, "--port", str(self.settings.ports["hub"]))
        return Service("hub", command, _bare_environment(), REPOSITORY)

    def _wait(self, service: str, url: str, answers: int = 200) -> None:
        patience = self._patience([service])
        while not patience.is_over() and not self.status()[service].gave_up:
            if _status_of(url) == answers:
                return
            time.sleep(POLL_S)
        raise self._not_started(f"the embedded {service} at {url}", service, "no answer")

    def _patience(self, services: Iterable[str]) -> Patience:
        """Patience with services, and with the processes that they start."""
        names = tuple(services)
        return Patience(lambda: set().union(*(self.supervisor.processes_of(name) for name in names)))

    def _not_started(self, what: str, service: str, state: str) -> PipelineError:
        log, tail = self.supervisor.log(service), self.supervisor.tail(service)
        return PipelineError(
            f"{what} did not start", found=f"{state}; its log ends with\n{tail}", remedy=f"Read {log}."
        )


def _wait_for_environments(*names: str) -> None:
    try:
        wait_for(*names)
    except SetupError as error:
        raise PipelineError(str(error)) from error


def _status_of(url: str) -> int | None:
    """The HTTP status of one of our servers; None if it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=2, context=UNVERIFIED) as answer:  # noqa: S310 - own loopback address
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


def _bare_environment() -> dict[str, str]:
    """The environment of embedded servers, without the caller's variables, so that they see none of its tokens."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
