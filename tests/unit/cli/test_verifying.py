"""`slipway explain --verify`: one line when every link holds, and the link that does not."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest

from slipway.cli.runs.verification import Verification
from slipway.tasks.adapters.hub.folders import ObjectStoreFolders
from slipway.tasks.adapters.sign.signatures import Signatures
from slipway.tasks.contracts.errors import InputError, SignatureError, UnavailableError
from slipway.tasks.contracts.site.signing import fingerprint
from slipway.tasks.contracts.stored.artifact import STAGES, Layout
from slipway.tasks.steps import fetch_repository, publish
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import release as planned_release
from tests.fakes.signing_keys import SigningKey
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import workspace

KEY = SigningKey()
REPO = "slipway/demo-llama"
FILES = {"config.json": b"{}", "model.safetensors": b"weights"}


class Pods:
    """Ready pods behind the live Service, with the messages of their init containers."""

    def __init__(self, *messages):
        self.messages = {f"pod-{number}": message for number, message in enumerate(messages)}

    def endpoints(self, service):
        assert service == "demo"
        return set(self.messages)

    def get(self, kind, name):
        assert kind == "Pod"
        ended = {"terminated": {"exitCode": 0, "message": self.messages[name]}}
        return {"status": {"initContainerStatuses": [{"name": "fetch-repository", "state": ended}]}}


class World:
    """A live release that was signed, loaded by two pods."""

    def __init__(self, folder, source=None, hub=None):
        """`source` and `hub` replace a repository at a Hub."""
        site = {"key_secret": "slipway-signing", "public_keys": [KEY.public]}
        self.space = replace(workspace(folder, signing=site), signing_key=KEY.private)
        source = source or MemoryHub({REPO: {"main": FILES}}).resolve(REPO, "main")
        self.hub = hub or MemoryHub({REPO: {source.commit: dict(FILES)}})
        made = planned_release()
        self.release = made.model_copy(update={"plan": made.plan.model_copy(update={"source": source})})
        for stage in STAGES[:-1]:
            self.store(stage, stage.encode())
        publish.run(self.release, self.space)
        uri = self.space.layout.release("demo", made.id)
        said = fetch_repository.run(self.release, uri, self.space, folder / "models").summary
        self.pods = Pods(said, said)
        self.prefix = self.space.layout.artifact("publish", self.key("publish"))

    def key(self, stage):
        return self.release.plan.stages[stage].key

    def store(self, stage, data):
        folder = self.space.scratch / stage
        folder.mkdir(exist_ok=True)
        (folder / f"{stage}.bin").write_bytes(data)
        self.space.artifacts.store(stage, self.key(stage), folder, inputs={}, producer={}, metrics={}, seconds=0)

    def verified(self):
        signatures = Signatures(self.space.store, self.space.layout, [KEY.public])
        return Verification(self.space.artifacts, signatures, self.hub, self.pods).of(self.release)

    def refused(self, kind=SignatureError):
        with pytest.raises(kind) as caught:
            self.verified()
        return caught.value


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_chain_that_holds_is_one_line(world):
    digest = sha256(
        b"".join(
            bytes.fromhex(file.sha256) for file in world.space.artifacts.find("publish", world.key("publish")).files
        )
    ).hexdigest()

    assert world.verified() == (
        f"verified: {REPO} at commit {world.release.plan.source.commit[:12]} (2 files as listed there) → "
        f"{world.release.id}, sha256:{digest[:12]}, signed by key {fingerprint(KEY.public)[:12]} → "
        "loaded by 2 of 2 pods"
    )


def test_a_folder_of_an_object_store_is_the_beginning_of_the_same_chain(tmp_path):
    store, folder = MemoryObjectStore(), "s3://models/acme/demo"
    for path, data in FILES.items():
        store.put_bytes(f"{folder}/{path}", data)
    folders = ObjectStoreFolders(store, Layout("s3://slipway"))
    world = World(tmp_path, folders.resolve(folder, ""), folders)

    assert world.verified().startswith(f"verified: {folder} at commit {world.release.plan.source.commit[:12]} (2 files")

    store.put_bytes(f"{folder}/model.safetensors", b"other")
    assert world.refused().what.startswith(f"model.safetensors of {folder} is not what its source has at commit")


def test_a_file_that_the_hub_has_otherwise_is_named(world):
    repository = world.hub.models[REPO]
    repository[world.release.plan.source.commit]["model.safetensors"] = b"other"

    assert world.refused().what.startswith(f"model.safetensors of {REPO} is not what its source has at commit")


def test_a_commit_that_the_hub_does_not_have_is_never_a_pass(world):
    world.hub.models[REPO].clear()

    assert "has no revision" in world.refused(InputError).what


def with_source(world, **changes):
    source = world.release.plan.source.model_copy(update=changes)
    world.release = world.release.model_copy(update={"plan": world.release.plan.model_copy(update={"source": source})})


def test_the_commit_is_the_signed_one_even_if_a_later_plan_found_the_same_files_at_another(world):
    commit = world.release.plan.source.commit
    with_source(world, commit="b" * 40)

    assert f"at commit {commit[:12]}" in world.verified()


def test_release_json_with_another_file_is_refused(world):
    weights = world.release.plan.source.files[1].model_copy(update={"digest": f"sha256:{'b' * 64}"})
    with_source(world, files=(weights,))

    assert world.refused().what == f"model.safetensors of {REPO} is not what {world.release.id} was made from"


def test_an_artifact_that_changed_after_the_release_is_named(world):
    uri = f"{world.space.layout.artifact('quantize', world.key('quantize'))}/manifest.json"
    manifest = json.loads(world.space.store.read_bytes(uri))
    manifest["files"][0]["sha256"] = "f" * 64
    world.space.store.put_bytes(uri, json.dumps(manifest).encode())

    assert world.refused().what.startswith("artifact quantize")


def test_artifacts_that_retention_deleted_are_vouched_for_by_the_signature(world):
    for stage in ("download", "quantize"):
        folder = world.space.layout.artifact(stage, world.key(stage))
        world.space.store.delete([item.uri for item in world.space.store.list(f"{folder}/")])

    assert world.verified().startswith("verified: ")


@pytest.mark.parametrize("name", ["model.sig", "provenance.sigstore.json"])
def test_a_missing_signature_is_refused(world, name):
    world.space.store.delete([f"{world.prefix}/{name}"])

    assert world.refused().what == f"there is no signature that can be read at {world.prefix}/{name}"


def test_a_statement_about_files_is_no_provenance(world):
    signature = world.space.store.read_bytes(f"{world.prefix}/model.sig")
    world.space.store.put_bytes(f"{world.prefix}/provenance.sigstore.json", signature)

    assert world.refused().what == f"the provenance of {world.release.id} names no commit of {REPO}"


def test_a_pod_that_loaded_something_else_is_named(world):
    said = world.pods.messages["pod-0"]
    before, _, after = said.partition("sha256:")
    world.pods = Pods(said, f"{before}sha256:{'0' * 64}{after[64:]}")

    assert world.refused().what.startswith("pod pod-1 did not load")


def test_a_pod_that_verified_nothing_is_named(world):
    world.pods = Pods(f"fetch-repository: {world.release.id} is at /models: 2 files, 1 MB, verified")

    assert world.refused().found == "no message about a verified signature"


def test_what_another_release_of_the_pod_verified_does_not_count(world):
    said = world.pods.messages["pod-0"]
    world.pods = Pods(said.replace(world.release.id, "other-111111111111"))

    assert world.refused().found == "no message about a verified signature"


def test_without_a_ready_pod_nothing_is_claimed(world):
    world.pods = Pods()

    assert world.refused(UnavailableError).what.startswith("no pod of demo is ready")
