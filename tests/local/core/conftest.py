"""Real servers in processes of their own: the laptop's S3, the local Hub, and steps as a pod runs them.

SLIPWAY_SITE and the AWS_* variables name another object store together: the site file's.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import boto3
import httpx
import pytest
import yaml

from tasks.adapters.folder_store import FolderStore
from tasks.adapters.s3 import S3ObjectStore
from tasks.adapters.transfer import transfer
from tasks.contracts.base import read_contract
from tasks.contracts.site import ObjectStoreSite, Site
from tests.fakes.releases import SPEC
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.ports import free_ports

LOCAL_SITE = REPOSITORY / "sites" / "local.yaml"
LOCAL_PYTHON = ENVIRONMENTS / "local" / "bin" / "python"
START_TIMEOUT_S = 30
TOKEN, STRANGER = "hf_planted_reader_token", "hf_planted_stranger_token"
SECRET = "planted-secret-access-key"
PLANTED = {"AWS_ACCESS_KEY_ID": "slipway", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
BUCKET = "slipway-test"
NO_BUCKET = "slipway-tests-nobody-makes-this-one"  # the name must be free in all of S3
NUMBERS = itertools.count(1)


@contextlib.contextmanager
def child(*command, **options):
    process = subprocess.Popen([LOCAL_PYTHON, *command], cwd=REPOSITORY, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def object_store(tmp_path_factory):
    """The section of the site that SLIPWAY_SITE names, else one for a server of the tests' own."""
    if named := os.environ.get("SLIPWAY_SITE"):
        yield read_contract(Site, yaml.safe_load(Path(named).read_text()), named).object_store
        return
    (port,), folder = free_ports(1), tmp_path_factory.mktemp("object-store")
    store = ObjectStoreSite(bucket=BUCKET, endpoint=f"http://127.0.0.1:{port}")
    served = ("-m", "local.object_store", "--folder", folder, "--site", LOCAL_SITE, "--port", str(port))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with child(*served, env={"PATH": os.environ["PATH"], **PLANTED}, **quiet):
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                assert httpx.get(store.endpoint, timeout=1).status_code == httpx.codes.FORBIDDEN
                break
            assert time.monotonic() < deadline, "the S3 server did not answer"
            time.sleep(0.1)
        make_bucket(store)
        yield store


def make_bucket(store):
    """The bucket of a server that the tests started."""
    keys = {name.lower(): PLANTED[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    client = boto3.client("s3", endpoint_url=store.endpoint, region_name=store.region, **keys)
    client.create_bucket(Bucket=store.bucket)


@pytest.fixture
def credentials(monkeypatch):
    """Of this process and of the steps that it starts: the environment's, else planted ones."""
    given = {name: os.environ.get(name, value) for name, value in PLANTED.items()}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return given


@pytest.fixture
def place(object_store, credentials):
    """A prefix of the test's own in the bucket, empty again afterwards: its site section."""
    prefix = f"{object_store.prefix}/test-{os.getpid()}-{next(NUMBERS)}".lstrip("/")
    made = object_store.model_copy(update={"prefix": prefix})
    yield made
    store = S3ObjectStore(made)
    store.delete([item.uri for item in store.list(f"{made.root}/")])


class Hub:
    """The local Hub over repositories that a test wrote."""

    def __init__(self, process, state):
        self.state = state
        process.stdout.readline()  # it serves now
        self.announced = json.loads((state / "server.json").read_text())
        self.endpoint = f"http://127.0.0.1:{self.announced['port']}"

    def switch_on(self, **fault):
        assert self._admin("POST", fault) == 204

    def switch_off(self):
        assert self._admin("DELETE") == 204

    def requests(self, ending):
        """Requests of file bodies whose path ends so."""
        lines = [json.loads(line) for line in (self.state / "access.jsonl").read_text().splitlines()]
        return [line for line in lines if line["path"].endswith(ending) and line["method"] == "GET"]

    def _admin(self, method, body=None):
        headers = {"Authorization": f"Bearer {self.announced['admin_token']}"}
        return httpx.request(method, f"{self.endpoint}/_faults", json=body, headers=headers).status_code


def download(client, source, folder):
    """Bring every file to a folder, as step download brings it to the object store."""
    store = FolderStore(folder)

    def move(file, count):
        client.bring(source, file, lambda remote: store.put_stream(remote, f"{store.root}/{file.path}"), count)

    transfer("download", source.files, move, client.clock)


WEIGHTS = bytes(range(256)) * 1200
FILES = {
    "README.md": b"about",
    "config.json": b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
}
LINES = b'{"prompt": "a", "answer": "b"}\n\n{"prompt": "c", "answer": "d"}\n'


def write_repository(folder, declaration, **revisions):
    for revision, files in revisions.items():
        for name, data in files.items():
            path = folder / revision / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    (folder / "repository.yaml").write_text(yaml.safe_dump(declaration))


@pytest.fixture
def hub(tmp_path):
    """acme/model with v1, a README-only v1-readme, pickle-only and wrong-digest; acme/gated; datasets/acme/questions."""
    fixtures = tmp_path / "fixtures"
    tags = {name: name for name in ("v1", "v1-readme", "pickle-only", "wrong-digest")}
    revisions = [
        {"name": "v1", "files": "v1"},
        {"name": "v1-readme", "from": "v1", "files": "readme"},
        {"name": "pickle-only", "from": "v1", "files": "pickle", "remove": ["model.safetensors"]},
        {"name": "wrong-digest", "from": "v1", "wrong_digest": ["model.safetensors"]},
    ]
    write_repository(
        fixtures / "acme" / "model",
        {"refs": {"branches": {"main": "v1"}, "tags": tags}, "revisions": revisions},
        v1=FILES,
        readme={"README.md": b"more"},
        pickle={"pytorch_model.bin": b"p"},
    )
    one = {"refs": {"branches": {"main": "v1"}}, "revisions": [{"name": "v1", "files": "v1"}]}
    write_repository(fixtures / "acme" / "gated", {**one, "gated": True, "tokens": [TOKEN]}, v1=FILES)
    lines = {"eval.jsonl": LINES, "broken.jsonl": b'{"a": 1}\n{"a": \n', "numbers.jsonl": b"7\n"}
    write_repository(fixtures / "datasets" / "acme" / "questions", one, v1=lines)
    with serving_hub(fixtures, tmp_path / "hub-state") as running:
        yield running


@contextlib.contextmanager
def serving_hub(fixtures, state):
    """The local Hub over these repositories."""
    command = ["-m", "local.hub", "--fixtures", str(fixtures), "--state", str(state)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    with child(*command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield Hub(process, state)
        process.stdout.close()


class Steps:
    """Runs `python -m tasks` as a pod does, and keeps everything that it said."""

    def __init__(self, folder, place, hub):
        self.folder, self.place, self.said = folder, place, ""
        self.store = S3ObjectStore(place)
        self.scratch, self.termination = folder / "scratch", folder / "termination-log"
        self.scratch.mkdir()
        self.environment = {
            "SLIPWAY_SITE": str(folder / "site.yaml"),
            "SLIPWAY_SCRATCH": str(self.scratch),
            "SLIPWAY_TERMINATION_LOG": str(self.termination),
        }
        self.write_site(place.model_dump(mode="json"), hub.endpoint)

    def write_site(self, object_store, hub_endpoint):
        shape = {"cpu": "1", "memory": "8Gi", "scratch": "8Gi"}
        site = {
            "apiVersion": "slipway/v1",
            "kind": "Site",
            "name": "test",
            "object_store": object_store,
            "hub": {"endpoint": hub_endpoint},
            "images": {"tasks": "tasks:1", "serving": {"openvino": "triton:1"}},
            "shapes": dict.fromkeys(("small", "transfer", "compute", "serving"), shape),
        }
        (self.folder / "site.yaml").write_text(yaml.safe_dump(site))

    def start(self, *arguments, **environment):
        return subprocess.Popen(
            [sys.executable, "-m", "tasks", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments, **environment):
        """The exit code."""
        process = self.start(*arguments, **environment)
        self.said += process.communicate(timeout=60)[0]
        return process.returncode

    def plan(self, revision="v1", run="run-1", repo="acme/model", **environment):
        """The exit code of plan, and its result document if there is one."""
        spec = json.dumps({**SPEC, "source": {"repo": repo, "revision": revision}})
        code = self.run("plan", "--spec", spec, "--run", run, **environment)
        return code, self.read(f"releases/demo/plans/{run}.json")

    def read(self, key):
        """A JSON document below the test's prefix; None when there is none."""
        uri = f"{self.place.root}/{key}"
        return json.loads(self.store.read_bytes(uri)) if self.store.exists(uri) else None

    def keys(self, prefix):
        """The keys below the test's prefix that begin with `prefix`."""
        listed = self.store.list(f"{self.place.root}/{prefix}")
        return [item.uri.removeprefix(f"{self.place.root}/") for item in listed]


@pytest.fixture
def steps(tmp_path, place, hub):
    return Steps(tmp_path, place, hub)
