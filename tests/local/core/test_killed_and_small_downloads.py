"""download of a model of several parts as a process: killed in the middle, and with less disk than the model has bytes."""

import hashlib
import json
import resource
import signal
from datetime import UTC, datetime, timedelta

import boto3
import pytest
import yaml

from tasks.adapters.parts import PART_BYTES
from tasks.contracts.retention import RetentionRequest
from tasks.steps import retention
from tests.fakes.cluster import in_memory
from tests.local.core.servers import FILES, WEIGHTS, serving_hub, write_repository
from tests.local.core.test_steps_as_processes import artifact_prefix, release_uri
from tests.support.waiting import until

SMALL, LARGE = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
LARGE_BYTES = hashlib.shake_128(b"large").digest(2 * PART_BYTES + 12_345)
MODEL = {
    "config.json": FILES["config.json"],
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": SMALL, "b": LARGE}}).encode(),
    "tokenizer.json": FILES["tokenizer.json"],
    SMALL: WEIGHTS,
    LARGE: LARGE_BYTES,
}
SMALL_DISK_BYTES = 2**16
LONGEST_S = 60


@pytest.fixture
def hub(tmp_path):
    """acme/model, whose weights are a file of one part and a file of three."""
    one = {"refs": {"branches": {"main": "v1"}, "tags": {"v1": "v1"}}, "revisions": [{"name": "v1", "files": "v1"}]}
    write_repository(tmp_path / "fixtures" / "acme" / "model", one, v1=MODEL)
    with serving_hub(tmp_path / "fixtures", tmp_path / "hub-state") as running:
        yield running


def parts_of(client, upload):
    """How many parts of an upload the store has."""
    bucket, _, key = upload.uri.removeprefix("s3://").partition("/")
    return len(client.list_parts(Bucket=bucket, Key=key, UploadId=upload.upload_id).get("Parts", []))


@pytest.fixture
def killed(steps, hub):
    """A download that was killed when it had stored the small file and a part of the large one: its plan."""
    _, planned = steps.plan()
    prefix, client = artifact_prefix(planned, "download"), boto3.client("s3", endpoint_url=steps.place.endpoint)
    # one connection: the second part has not begun to arrive when the first one is stored, and takes 10 s
    hub.switch_on(repo="acme/model", file=LARGE, kind="slow", bytes_per_s=PART_BYTES // 10)
    process = steps.start("download", "--release", release_uri(planned), "--concurrency", "1")

    def is_halfway():
        uploads = list(steps.store.uploads(f"{steps.place.root}/"))
        return f"{prefix}/{SMALL}" in steps.keys(prefix) and any(parts_of(client, each) for each in uploads)

    until(is_halfway)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert f"{prefix}/{LARGE}" not in steps.keys(prefix)
    hub.switch_off()
    return planned


def stored(steps, planned):
    """The files of the download artifact, by path, as their bytes are in the store."""
    prefix = artifact_prefix(planned, "download")
    manifest = steps.read(f"{prefix}/manifest.json")
    return {
        file["path"]: steps.store.read_bytes(f"{steps.place.root}/{prefix}/{file['path']}")
        for file in manifest["files"]
    }


def test_a_killed_download_goes_on_without_the_files_that_are_stored(steps, hub, killed):
    before = len(hub.requests(LARGE))

    assert steps.run("download", "--release", release_uri(killed)) == 0

    assert stored(steps, killed) == MODEL
    assert len(hub.requests(SMALL)) == 1
    assert len(hub.requests(LARGE)) > before


def test_retention_aborts_the_upload_that_a_killed_download_left_and_nothing_else(steps, tmp_path, killed):
    (left,) = steps.store.uploads(f"{steps.place.root}/")
    assert steps.run("download", "--release", release_uri(killed)) == 0
    assert [each.upload_id for each in steps.store.uploads(f"{steps.place.root}/")] == [left.upload_id]

    swept(steps, tmp_path / "first", after=timedelta(hours=1))
    assert [each.upload_id for each in steps.store.uploads(f"{steps.place.root}/")] == [left.upload_id]

    swept(steps, tmp_path / "second", after=timedelta(hours=73))
    assert list(steps.store.uploads(f"{steps.place.root}/")) == []
    assert stored(steps, killed) == MODEL


def swept(steps, folder, *, after):
    """Run retention with its defaults, so long after now."""
    folder.mkdir()
    workspace = in_memory(folder, store=steps.store, object_store=steps.place.model_dump(mode="json"), retention={})
    workspace.clock.began = datetime.now(UTC) + after
    retention.run(RetentionRequest(run=folder.name), workspace)


def test_a_download_needs_less_disk_than_its_largest_file(steps, hub):
    site = yaml.safe_load((steps.folder / "site.yaml").read_text())
    site["shapes"]["transfer"] = {**site["shapes"]["transfer"], "scratch": "1Mi"}
    (steps.folder / "site.yaml").write_text(yaml.safe_dump(site))
    _, planned = steps.plan()

    process = steps.start("download", "--release", release_uri(planned))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (SMALL_DISK_BYTES, SMALL_DISK_BYTES))
    said, _ = process.communicate(timeout=LONGEST_S)

    assert process.returncode == 0, said
    assert stored(steps, planned) == MODEL
