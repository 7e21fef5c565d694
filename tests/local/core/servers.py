"""Real servers in processes of their own: the laptop's S3 and the local Hub.

SLIPWAY_SITE and the AWS_* variables name another object store together: the site file's.
"""

import contextlib
import hashlib
import itertools
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import boto3
import httpx
import pytest
import yaml

from slipway.tasks.adapters.store.folder_store import FolderStore
from slipway.tasks.adapters.store.parts import PART_BYTES
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.adapters.store.transfer import transfer
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.site import ObjectStoreSite, Site
from tests.support import plain_http
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.ports import free_ports
from tests.support.waiting import PATIENCE_S

LOCAL_SITE = REPOSITORY / "sites" / "local.yaml"
LOCAL_PYTHON = ENVIRONMENTS / "local" / "bin" / "python"
TOKEN, STRANGER = "hf_planted_reader_token", "hf_planted_stranger_token"
SECRET = "planted-secret-access-key"
PLANTED = {"AWS_ACCESS_KEY_ID": "slipway", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
BUCKET = "slipway-test"
NO_BUCKET = "slipway-tests-nobody-makes-this-one"  # the name must be free in all of S3
NUMBERS = itertools.count(1)
STORES = {}


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
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                assert plain_http.get(store.endpoint, timeout=1).status_code == httpx.codes.FORBIDDEN
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


class Hub:
    """The local Hub over repositories that a test wrote."""

    def __init__(self, process, state):
        self.state, self._before = state, 0
        process.stdout.readline()  # it serves now
        self.announced = json.loads((state / "server.json").read_text())
        self.endpoint = f"http://127.0.0.1:{self.announced['port']}"

    def begin(self):
        """Forget faults and requests of the tests before. What they left under way is still logged when it ends."""
        self.switch_off()
        self._before = len(self._log())
        return self

    def switch_on(self, **fault):
        assert self._admin("POST", fault) == 204

    def switch_off(self):
        assert self._admin("DELETE") == 204

    def requests(self, path):
        """Requests of the body of `<repository>/<file>`."""
        repo, name = path.rsplit("/", 1)
        return [
            line
            for line in self._log()[self._before :]
            if line["method"] == "GET" and line["path"].startswith(f"/{repo}/resolve/") and line["path"].endswith(name)
        ]

    def _log(self):
        return [json.loads(line) for line in (self.state / "access.jsonl").read_text().splitlines()]

    def _admin(self, method, body=None):
        headers = {"Authorization": f"Bearer {self.announced['admin_token']}"}
        return plain_http.request(method, f"{self.endpoint}/_faults", json=body, headers=headers).status_code


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
LARGE_BYTES = hashlib.shake_128(b"large").digest(2 * PART_BYTES + 12_345)
PARTS = {
    "config.json": FILES["config.json"],
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ).encode(),
    "tokenizer.json": FILES["tokenizer.json"],
    "model-00001-of-00002.safetensors": WEIGHTS,
    "model-00002-of-00002.safetensors": LARGE_BYTES,
}
"""Weights in a file of one part and a file of three."""
LINES = b'{"prompt": "a", "answer": "b"}\n\n{"prompt": "c", "answer": "d"}\n'


def write_repository(folder, declaration, **revisions):
    for revision, files in revisions.items():
        for name, data in files.items():
            path = folder / revision / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    (folder / "repository.yaml").write_text(yaml.safe_dump(declaration))


@contextlib.contextmanager
def serving_hub(fixtures, state):
    """The local Hub over these repositories."""
    command = ["-m", "local.hub", "--fixtures", str(fixtures), "--state", str(state)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    with child(*command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield Hub(process, state)
        process.stdout.close()


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
    store = connected(made)
    store.delete([item.uri for item in store.list(f"{made.root}/")])


def connected(place):
    """The store of a place. One client serves all places of a bucket: boto3 takes half a second of CPU to make one."""
    key = (place.endpoint, place.bucket)
    if key not in STORES:
        STORES[key] = S3ObjectStore(place)
    return STORES[key]
