"""The whole chain as its users meet it: Airflow over REST, steps as processes, cluster and object store beside them."""

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import boto3
import pytest
import yaml
from botocore.config import Config
from kubernetes import client, config

from demo.observers import PodWatch
from demo.traffic import Traffic, ask
from slipway.airflow.runs import run_identity
from slipway.cli.airflow.api import FINAL_TASK_STATES, Airflow, NoSuchDagError
from slipway.cli.airflow.login import Login
from slipway.cli.runs.follow import follow
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.store.heads import exists
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.gate import PER_LEVEL_METRICS
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import MANIFEST, Layout
from tests.support.paths import REPOSITORY
from tests.support.processes import processes_naming
from tests.support.waiting import until

SPEC_FILE = REPOSITORY / "specs" / "demo.yaml"
SPEC = yaml.safe_load(SPEC_FILE.read_text())
MODEL = SPEC["name"]
RUN_TIMEOUT_S = 800.0  # ten times what a release takes on an idle machine
POLL_S = 4.0
"""Between two looks at a run: each costs Airflow several requests."""
TRAFFIC_PAUSE_S = 1.0
BENCHMARK = {"concurrency": [1, 4], "requests": 32, "warmup": 2}
CONNECTION_AGE_S = 10
FEW_QUESTIONS = SPEC["gate"]["quality"] | {"dataset": "hf://datasets/slipway/demo-questions@main/held-out.jsonl"}
"""This is for a gate that does not judge the answers. The texts for perplexity are the demo's: they are in the key of quantize."""


def made_light(spec):
    """The demo's spec with less load, and clients that soon leave a release; other tests take the machine's CPUs by fits
    and starts, so the limits on times are wide."""
    spec["gate"]["benchmark"] |= BENCHMARK
    spec["serving"] = {"connection_age_s": CONNECTION_AGE_S}
    for line in spec["gate"]["expect"]:
        if line["metric"] in PER_LEVEL_METRICS - {"error_rate"}:
            limit = next(name for name in line if name.startswith("at_"))
            line[limit] *= 0.01 if limit.startswith("at_least") else 100
    return spec


@dataclass(frozen=True)
class Ended:
    """How a step's process or pod ended, and its last line."""

    exit_code: int
    message: str
    said: str = ""


class Unseen:
    """Draws nothing."""

    def show(self, view):
        pass


class Chain:
    """`stack` is the embedded one, of which `up` starts what was ended; None: cluster, store and Airflow are those that the
    environment names."""

    run_timeout_s = RUN_TIMEOUT_S

    def __init__(self, environment, scratch, stack=None, up=None):
        self.environment, self.scratch, self.stack, self.up = environment, scratch, stack, up
        self.site_file, self.kubeconfig = Path(environment["SLIPWAY_SITE"]), environment.get("KUBECONFIG")
        self.site = read_contract(Site, yaml.safe_load(self.site_file.read_text()), str(self.site_file))
        self.spec = read_contract(ReleaseSpec, SPEC, SPEC_FILE.name)
        self.layout = Layout(self.site.object_store.root)
        self.connect()
        self.login = Login(*(environment.get(f"SLIPWAY_AIRFLOW_{name}") for name in ("USER", "PASSWORD", "TOKEN")))
        address = environment.get("SLIPWAY_AIRFLOW")
        self.airflow = Airflow(address, self.login) if address else None
        store = self.site.object_store
        self._s3 = boto3.client(
            "s3",
            endpoint_url=store.endpoint,
            region_name=store.region,
            aws_access_key_id=environment.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=environment.get("AWS_SECRET_ACCESS_KEY"),
            config=Config(s3={"addressing_style": "path"}),
        )

    def connect(self):
        """Connect to the cluster, which may be another one than before."""
        self.cluster = Cluster.connect(self.site, kubeconfig=Path(self.kubeconfig) if self.kubeconfig else None)
        api = config.new_client_from_config(self.kubeconfig, context=self.site.kubernetes.context)
        self.core = client.CoreV1Api(api)

    # a step as a process

    def run(self, *arguments, site=None, **environment):
        """`python -m slipway.tasks` to its end; nothing may be left in its scratch."""
        self.scratch.mkdir(exist_ok=True)
        termination = self.scratch.with_name("termination-log")
        own = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "SLIPWAY_SCRATCH": str(self.scratch),
            "SLIPWAY_TERMINATION_LOG": str(termination),
        }
        done = subprocess.run(
            [sys.executable, "-m", "slipway.tasks", *arguments, *(["--site", str(site)] if site else [])],
            cwd=REPOSITORY,
            env={**self.environment, **own, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert list(self.scratch.iterdir()) == []
        return Ended(done.returncode, termination.read_text().strip(), done.stdout)

    def slipway(self, *arguments):
        """`bin/slipway` to its end, as a person gives it."""
        return self.ended(self.begun(*arguments))

    def begun(self, *arguments):
        """`bin/slipway`, which goes on; `ended` waits for it."""
        own = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
        return subprocess.Popen(
            [REPOSITORY / "bin" / "slipway", *map(str, arguments)],
            env=own | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, command):
        """A command that was begun, as it ended."""
        with command:
            try:
                said = command.communicate(timeout=2 * self.run_timeout_s)
            except BaseException:
                command.kill()
                raise
        return subprocess.CompletedProcess(command.args, command.returncode, *said)

    # a release through Airflow

    def trigger(self, dag_id, run_id=None, **conf):
        """A run, once Airflow has read the DAG."""

        def triggered():
            with contextlib.suppress(NoSuchDagError):
                return self.airflow.trigger(dag_id, conf, run_id)
            return None

        return until(triggered)

    def follow(self, run):
        """The run as it stands when it has ended."""
        return follow(self.airflow, run, Unseen(), timeout_s=self.run_timeout_s, poll_s=POLL_S)

    def said(self, view):
        """What each task of an ended run reported, and why one failed."""
        failed = [task for task in view.tasks.values() if task.state == "failed"]
        reported = {name: result.summary for name, result in view.results.items()}
        return reported | {task.task_id: self.airflow.error(view.run, task).message for task in failed}

    def task_states(self, run):
        """State by task; none while Airflow does not answer, as after its restart."""
        with contextlib.suppress(UnavailableError):
            return {task.task_id: task.state for task in self.airflow.tasks(run)}
        return {}

    def reach(self, run, task_id, states):
        """Wait until this task of the run, or any if it is None, is in one of the states, unless all have ended without it."""

        def reached():
            found = self.task_states(run)
            is_there = not states.isdisjoint([found.get(task_id)] if task_id else found.values())
            assert is_there or not found or not FINAL_TASK_STATES.issuperset(found.values()), found
            return is_there

        until(reached, timeout_s=RUN_TIMEOUT_S, said=lambda: self.task_states(run))

    def step_processes(self, run, steps):
        """Pids of the processes of these steps of a run, where they are this machine's."""
        named = processes_naming(run_identity(run.run_id))
        return [pid for pid, command in named.items() if set(re.findall(r" -m slipway\.tasks (\S+) ", command)) & steps]

    def reach_candidate(self, model=MODEL):
        """Wait until the model has a candidate."""
        until(lambda: self.candidate(model), timeout_s=RUN_TIMEOUT_S)

    def release(self, revision, **conf):
        """A release of the demo model to its end."""
        return self.follow(self.trigger(f"release__{MODEL}", revision=revision, **conf))

    def counting_pods(self, **labels):
        """Counts the pods that carry these labels and start within the block."""
        selector = ",".join(f"slipway.dev/{name}={value}" for name, value in labels.items())
        return PodWatch(self.kubeconfig, self.site.kubernetes.pipeline_namespace, selector)

    # what stands in cluster and store

    def address(self, service=MODEL):
        """Where a Service answers. Skips the test on a machine that has no route to the cluster's Services."""
        if self.stack is None and not self._routes_to_services:
            pytest.skip("needs a route to ClusterIPs: run the tests on a node of the cluster or in a pod")
        return self.cluster.service_address(service)

    @cached_property
    def _routes_to_services(self):
        """Whether the cluster's own API answers at the ClusterIP that every cluster gives it."""
        api = self.core.read_namespaced_service("kubernetes", "default").spec
        try:
            socket.create_connection((api.cluster_ip, api.ports[0].port), timeout=5).close()
        except OSError:
            return False
        return True

    def ask(self, service=MODEL, model=MODEL):
        """Whether a Service's model gives the right answer to the first smoke question."""
        question, address = self.spec.gate.smoke[0], self.address(service)
        return question.accepts(ask(model, address.host, address.ports, question))

    def traffic(self, model=MODEL):
        """A steady client of a live model of the demo's."""
        address = self.address(model)
        return Traffic(model, address.host, address.ports, self.spec.gate.smoke[0], pause_s=TRAFFIC_PAUSE_S)

    def live_service(self, model=MODEL):
        """What must not change while nothing is promoted: the Service and the pods behind it."""
        service = self.cluster.get("Service", model)
        return service["metadata"]["uid"], service["spec"], self.cluster.endpoints(model)

    def candidate(self, model=MODEL):
        """The Service of the model's candidate; None while there is none."""
        return self.cluster.get("Service", f"{model}-candidate")

    def lease_holder(self, model=MODEL):
        """Who has the model's lease; None while nobody does."""
        return self.cluster.lease_holder(f"slipway-{model}")

    def deployments(self, model=MODEL):
        """Names of the model's Deployments."""
        return {item["metadata"]["name"] for item in self.cluster.find("Deployment", {"slipway.dev/model": model})}

    def channel(self, model=MODEL):
        """The model's channel; None before the first promotion or refusal."""
        return self.read(self.layout.channel(model))

    def live(self, model=MODEL):
        """Id of the live release by the channel."""
        channel = self.channel(model)
        return channel["live"]["release_id"] if channel and channel["live"] else None

    def bytes(self, uri):
        """An object; None when there is none."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        try:
            return self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except self._s3.exceptions.NoSuchKey:
            return None

    def write(self, uri, document):
        """Write a JSON document."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        self._s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(document).encode())

    def read(self, uri):
        """A JSON document, which is whole; None when there is none."""
        found = self.bytes(uri)
        return None if found is None else json.loads(found)

    def keys(self, uri):
        """URIs of all objects under a prefix."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {f"s3://{bucket}/{item['Key']}" for page in pages for item in page.get("Contents", [])}

    def forget(self, uri):
        """Delete all objects under a prefix."""
        for found in self.keys(uri):
            bucket, _, key = found.removeprefix("s3://").partition("/")
            self._s3.delete_object(Bucket=bucket, Key=key)

    def manifest(self, stage, key):
        """The artifact's manifest after a look at every file that it names; None while it is absent or claimed."""
        prefix = self.layout.artifact(stage, key)
        found = self.bytes(f"{prefix}/{MANIFEST}")
        if found is None or not exists(found, prefix):
            return None
        manifest = json.loads(found)
        for file in manifest["files"]:
            data = self.bytes(f"{prefix}/{file['path']}")
            assert data is not None, f"{stage}: the manifest names {file['path']}, which is absent"
            assert hashlib.sha256(data).hexdigest() == file["sha256"], f"{stage}: {file['path']}"
        return manifest

    def standing(self):
        """Everything that a refused request must leave as it was: artifacts, releases, channels, Deployments."""
        root = self.site.object_store.root
        of_every_run = ("/requests/", "/plans/", "/results/", "/checked.json")
        keys = {uri for uri in self.keys(root) if not any(folder in uri for folder in of_every_run)}
        labels = {"app.kubernetes.io/managed-by": "slipway"}
        return keys, {item["metadata"]["name"] for item in self.cluster.find("Deployment", labels)}
