"""A Hub token is in one Secret and in the pods that ask the Hub, and nowhere else that a release leaves or shows."""

import base64
import json
import re
import stat
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.local.chain.own_stack import SPECS
from tests.local.chain.test_bad_input import GATED, TOKEN
from tests.local.chain.whole_chain import SPEC
from tests.support.walking import below

pytestmark = pytest.mark.timeout(1200)

NAME, SECRET = "planted", "planted-hub"
STEP = re.compile(rb" -m slipway.tasks ([a-z-]+) ")
EVERY_S = 0.1
STORED = "cluster/objects.sqlite"
"""The embedded cluster's objects, which hold the Secret itself."""


def written(token):
    """The token as it is, and as base64 has it at each of the three places where it may begin."""
    encoded = {base64.b64encode(b"x" * place + token.encode()) for place in range(3)}
    return [token.encode(), *(text.rstrip(b"=")[4:-4] for text in encoded)]


def holds_it(file):
    """Whether the token is in the file; one that ended with its pod holds nothing."""
    with suppress(FileNotFoundError):
        data = file.read_bytes()
        return any(text in data for text in written(TOKEN))
    return False


class Watcher(threading.Thread):
    """Looks for the token in every process and every pod's object while the block runs."""

    def __init__(self, chain):
        super().__init__(daemon=True)
        self._chain, self._ended = chain, threading.Event()
        self.arguments, self.environments, self.objects, self.looks = set(), set(), set(), 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()

    def run(self):
        while not self._ended.wait(EVERY_S):
            self.looks += 1
            for folder in Path("/proc").glob("[0-9]*"):
                self._look_at(folder)
            for namespace in {self._chain.site.kubernetes.pipeline_namespace, self._chain.cluster.namespace}:
                told = self._chain.core.list_namespaced_pod(namespace, _preload_content=False).read()
                self.objects |= {namespace} if TOKEN.encode() in told else set()

    def _look_at(self, folder):
        try:
            arguments = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
            environment = (folder / "environ").read_bytes()
        except OSError:
            return
        if TOKEN.encode() in arguments:
            self.arguments.add(arguments)
        if TOKEN.encode() in environment:
            step = STEP.search(arguments)
            self.environments.add(step[1].decode() if step else arguments.decode())


@pytest.fixture(scope="module")
def released(chain):
    """A release of a gated model through Airflow, with --force so that no stage is stored: its run, and the watcher."""
    if chain.stack is None:
        pytest.skip("looks at the processes and files of the embedded stack")
    namespace = chain.site.kubernetes.pipeline_namespace
    source = {"repo": GATED, "revision": "v1", "token_secret": f"{SECRET}/token"}
    benchmark = SPEC["gate"]["benchmark"] | {"concurrency": [1], "requests": 32, "warmup": 2}
    asked = SPEC | {"name": NAME, "source": source, "gate": SPEC["gate"] | {"benchmark": benchmark}}
    secret = {"metadata": {"name": SECRET}, "stringData": {"token": TOKEN}}
    chain.core.create_namespaced_secret(namespace, secret)
    file = SPECS / f"{NAME}.yaml"
    file.write_text(yaml.safe_dump(asked))
    try:
        with Watcher(chain) as seen:
            view = chain.follow(chain.trigger(f"release__{NAME}", force=True))
        yield view, seen
    finally:
        file.unlink()
        chain.core.delete_namespaced_secret(SECRET, namespace)
        for kind in ("Deployment", "Service"):
            for item in chain.cluster.find(kind, {"slipway.dev/model": NAME}):
                chain.cluster.delete(kind, item["metadata"]["name"])


def test_a_gated_model_is_released_with_the_token_of_its_secret(released):
    view, _ = released

    assert view.run.state == "success", {name: result.summary for name, result in view.results.items()}
    assert view.results["download"].outcome == "done"


def test_only_the_pods_that_ask_the_hub_have_the_token_and_only_in_their_environment(released):
    _, seen = released

    assert seen.environments == {"plan", "download"}
    assert seen.arguments == set()
    assert seen.objects == set()
    assert seen.looks > 20


def test_no_object_in_the_store_holds_it(released, chain):
    uris = chain.keys(f"s3://{chain.site.object_store.bucket}")

    assert any(NAME in uri for uri in uris)
    assert [uri for uri in uris if any(text in chain.bytes(uri) for text in written(TOKEN))] == []


def test_no_log_database_or_file_of_the_stack_holds_it_but_the_clusters_own_objects(released, chain):
    files = [path for path, status in below(chain.stack.folder) if stat.S_ISREG(status.st_mode)]
    found = {file.relative_to(chain.stack.folder).as_posix() for file in files if holds_it(file)}

    assert {name for name in found if not name.startswith(STORED)} == set()
    assert any("airflow" in file.parts and file.suffix == ".log" for file in files)


def test_no_answer_of_airflow_holds_it(released, chain):
    view, _ = released
    told = json.dumps({name: result.model_dump(mode="json") for name, result in view.results.items()})

    assert TOKEN not in told
