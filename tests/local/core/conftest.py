"""Steps as a pod runs them, over the servers of servers.py."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from tests.fakes.releases import SPEC
from tests.local.core.servers import (
    FILES,
    LINES,
    PARTS,
    TOKEN,
    connected,
    credentials,
    object_store,
    place,
    serving_hub,
    write_repository,
)
from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S

__all__ = ["credentials", "object_store", "place"]


@pytest.fixture(scope="session")
def running_hub(tmp_path_factory):
    """acme/model with v1, a README-only v1-readme, pickle-only and wrong-digest; the same files in acme/gated and acme/slow,
    for downloads that are left under way; acme/parts; datasets/acme/questions."""
    folder = tmp_path_factory.mktemp("hub")
    fixtures = folder / "fixtures"
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
    one = {"refs": {"branches": {"main": "v1"}, "tags": {"v1": "v1"}}, "revisions": [{"name": "v1", "files": "v1"}]}
    write_repository(fixtures / "acme" / "gated", {**one, "gated": True, "tokens": [TOKEN]}, v1=FILES)
    write_repository(fixtures / "acme" / "slow", one, v1=FILES)
    write_repository(fixtures / "acme" / "parts", one, v1=PARTS)
    lines = {"eval.jsonl": LINES, "broken.jsonl": b'{"a": 1}\n{"a": \n', "numbers.jsonl": b"7\n"}
    write_repository(fixtures / "datasets" / "acme" / "questions", one, v1=lines)
    with serving_hub(fixtures, folder / "state") as running:
        yield running


@pytest.fixture
def hub(running_hub):
    return running_hub.begin()


class Steps:
    """Runs `python -m slipway.tasks` as a pod does, and keeps everything that it said."""

    def __init__(self, folder, place, hub):
        self.folder, self.place, self.said, self._started = folder, place, "", []
        self.store = connected(place)
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
        process = subprocess.Popen(
            [sys.executable, "-m", "slipway.tasks", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def end(self):
        """Kill what a failed test left, and print what it said."""
        for process in self._started:
            if process.returncode is None:
                process.kill()
                print(process.communicate()[0])

    def run(self, *arguments, **environment):
        """The exit code."""
        process = self.start(*arguments, **environment)
        self.said += process.communicate(timeout=PATIENCE_S)[0]
        return process.returncode

    def plan(self, revision="v1", run="run-1", repo="acme/model", source=None, **environment):
        """The exit code of plan, and its result document if there is one. `source` replaces repository and revision."""
        spec = json.dumps({**SPEC, "source": source or {"repo": repo, "revision": revision}})
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
    made = Steps(tmp_path, place, hub)
    yield made
    made.end()
