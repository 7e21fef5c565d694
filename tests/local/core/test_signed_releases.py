"""Signatures in a real object store, read by OpenSSF model-signing's own command and by in-toto's own library."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.site.signing import KEY_VARIABLE
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.plan import HubFile
from tests.fakes.releases import release
from tests.fakes.signing_keys import SigningKey
from tests.support.paths import ENVIRONMENTS

DEV_PYTHON = ENVIRONMENTS / "dev" / "bin" / "python"
"""model-signing is in no image, so its command has an environment of its own."""
PARTS = {"download": "model.safetensors", "build": "model.xml", "assemble": "demo/config.pbtxt"}
HUB_FILES = (
    HubFile(path="model.safetensors", digest=f"sha256:{'1' * 64}", size_bytes=8),
    HubFile(path="config.json", digest=f"git-sha1:{'2' * 40}", size_bytes=2),
)
OURS, THEIRS = SigningKey(), SigningKey()
READ_PROVENANCE = """
import base64, json, sys
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement, statement_pb2
read = json.loads(base64.b64decode(json.load(open(sys.argv[1]))["dsseEnvelope"]["payload"]))
parsed = json_format.Parse(json.dumps(read), statement_pb2.Statement())
statement.Statement.copy_from_pb(parsed).validate()
predicate = json_format.Parse(json.dumps(read["predicate"]), provenance_pb2.Provenance())
dependencies = {each.name: dict(each.digest) for each in predicate.build_definition.resolved_dependencies}
print(json.dumps([predicate.run_details.builder.id, predicate.run_details.metadata.finished_on.ToJsonString(), dependencies]))
"""


class Published:
    """A release that publish signed, in an object store."""

    def __init__(self, steps):
        self.steps = steps
        self.accept(OURS)
        planned = release()
        source = planned.plan.source.model_copy(update={"files": HUB_FILES})
        planned = planned.model_copy(update={"plan": planned.plan.model_copy(update={"source": source})})
        layout = Layout(steps.place.root)
        self.release = layout.release("demo", planned.id)
        steps.store.put_bytes(self.release, canonical_json(planned.model_dump(mode="json")))
        store = ArtifactStore(steps.store, layout, SystemClock())
        for stage, name in PARTS.items():
            path = steps.folder / stage / name
            path.parent.mkdir(parents=True)
            path.write_text(stage)
            key = planned.plan.stages[stage].key
            store.store(stage, key, steps.folder / stage, inputs={}, producer={}, metrics={}, seconds=0)
        self.prefix = layout.artifact("publish", planned.plan.stages["publish"].key)
        assert steps.run("publish", "--release", self.release, **{KEY_VARIABLE: OURS.private}) == 0, steps.said

    def accept(self, *keys):
        file = self.steps.folder / "site.yaml"
        signing = {"key_secret": "slipway-signing", "public_keys": [key.public for key in keys]}
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "signing": signing}))

    def fetch(self):
        """The exit code, and the termination message, which Kubernetes shows."""
        code = self.steps.run("fetch-repository", "--release", self.release, "--to", str(self.steps.folder / "models"))
        return code, self.steps.termination.read_text()

    def copy(self, folder):
        """Everything under the artifact's prefix, as `aws s3 cp --recursive` copies it."""
        for item in self.steps.store.list(f"{self.prefix}/"):
            path = folder / item.uri.removeprefix(f"{self.prefix}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            self.steps.store.get_file(item.uri, path, item.size_bytes)
        return folder


@pytest.fixture
def published(steps):
    return Published(steps)


def by_model_signing(folder: Path, key: SigningKey):
    """The exit code and the text of OpenSSF model-signing's own command."""
    public_key = folder.with_name("key.pub")
    public_key.write_text(key.public)
    command = ["verify", "key", str(folder), "--signature", str(folder / "model.sig"), "--public_key", str(public_key)]
    done = subprocess.run(
        [DEV_PYTHON, "-m", "model_signing", *command], capture_output=True, text=True, check=False, cwd=folder
    )
    return done.returncode, done.stdout + done.stderr


def test_a_pod_fetches_what_was_signed(published):
    code, message = published.fetch()

    assert code == 0
    assert "verified, sha256:" in message
    assert (published.steps.folder / "models/demo/1/engine/model.xml").read_text() == "build"


def test_a_pod_ends_with_the_reason_why_a_signature_is_refused(published):
    published.accept(THEIRS)

    code, message = published.fetch()

    assert code == 65
    assert "model.sig was signed by a foreign key" in message
    assert not list((published.steps.folder / "models").rglob("*"))


def test_model_signing_verifies_a_downloaded_copy_and_refuses_another(published, tmp_path):
    folder = published.copy(tmp_path / "copy")
    assert by_model_signing(folder, OURS) == (0, "Verification succeeded\n")

    code, text = by_model_signing(folder, THEIRS)
    assert (code, "Key mismatch" in text) == (1, True)

    (folder / "demo/1/engine/model.xml").write_text("other")
    code, text = by_model_signing(folder, OURS)
    assert (code, "Hash mismatch" in text) == (1, True)


def test_in_totos_library_reads_the_provenance(published, tmp_path):
    folder = published.copy(tmp_path / "copy")

    command = [DEV_PYTHON, "-c", READ_PROVENANCE, str(folder / "provenance.sigstore.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    builder, finished_on, dependencies = json.loads(done.stdout)
    assert builder == "https://slipway.dev/site/test"
    assert finished_on.endswith("Z")
    assert dependencies["source"] == {"gitCommit": "a" * 40}
    assert dependencies["file/model.safetensors"] == {"sha256": "1" * 64}
    assert dependencies["file/config.json"] == {"gitBlob": "2" * 40}
    assert dependencies.keys() > {"download", "build", "assemble"}
