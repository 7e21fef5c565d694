"""download of a model of several parts as a process: killed in the middle, and with less disk than the model has bytes."""

import resource
import signal
from datetime import UTC, datetime, timedelta

import boto3
import pytest
import yaml

from slipway.tasks.contracts.site.retention import RetentionRequest
from slipway.tasks.steps import retention
from tests.fakes.kube.cluster import in_memory
from tests.local.core.servers import PARTS
from tests.local.core.test_steps_as_processes import artifact_prefix, release_uri
from tests.support.waiting import PATIENCE_S, until

SMALL, LARGE = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
REPO = "acme/parts"
SMALL_DISK_BYTES = 2**16


def parts_of(client, upload):
    """How many parts of an upload the store has."""
    bucket, _, key = upload.uri.removeprefix("s3://").partition("/")
    return len(client.list_parts(Bucket=bucket, Key=key, UploadId=upload.upload_id).get("Parts", []))


@pytest.fixture
def killed(steps, hub):
    """A download that was killed when it had stored the small file and a part of the large one: its plan."""
    _, planned = steps.plan(repo=REPO)
    prefix, client = artifact_prefix(planned, "download"), boto3.client("s3", endpoint_url=steps.place.endpoint)
    # over one connection: the first part comes at once, and the second one takes hours
    hub.switch_on(repo=REPO, file=LARGE, kind="slow", bytes_per_s=2**30, times=1)
    hub.switch_on(repo=REPO, file=LARGE, kind="slow", bytes_per_s=1000)
    process = steps.start("download", "--release", release_uri(planned), "--concurrency", "1")

    def is_halfway():
        uploads = list(steps.store.uploads(f"{steps.place.root}/"))
        return f"{prefix}/{SMALL}" in steps.keys(prefix) and any(parts_of(client, each) for each in uploads)

    until(is_halfway)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert "claimed_at" in steps.read(f"{prefix}/manifest.json")
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


def test_a_killed_download_goes_on_without_the_files_that_are_stored(steps, hub, tmp_path, killed):
    before = len(hub.requests(f"{REPO}/{LARGE}"))
    (left,) = steps.store.uploads(f"{steps.place.root}/")

    assert steps.run("download", "--release", release_uri(killed)) == 0

    assert stored(steps, killed) == PARTS
    assert steps.plan(repo=REPO)[1]["data"]["stages"]["download"]["stored"] is True
    assert len(hub.requests(f"{REPO}/{SMALL}")) == 1
    assert len(hub.requests(f"{REPO}/{LARGE}")) > before
    retention_aborts_the_upload_that_it_left_and_nothing_else(steps, tmp_path, killed, left)


def retention_aborts_the_upload_that_it_left_and_nothing_else(steps, tmp_path, killed, left):
    assert [each.upload_id for each in steps.store.uploads(f"{steps.place.root}/")] == [left.upload_id]

    swept(steps, tmp_path / "first", after=timedelta(hours=1))
    assert [each.upload_id for each in steps.store.uploads(f"{steps.place.root}/")] == [left.upload_id]

    swept(steps, tmp_path / "second", after=timedelta(hours=73))
    assert list(steps.store.uploads(f"{steps.place.root}/")) == []
    assert stored(steps, killed) == PARTS


def swept(steps, folder, *, after):
    """Run retention with its defaults, so long after now."""
    folder.mkdir()
    workspace = in_memory(folder, store=steps.store, object_store=steps.place.model_dump(mode="json"), retention={})
    workspace.clock.began = datetime.now(UTC) + after
    retention.run(RetentionRequest(run=folder.name), workspace)


def test_a_download_needs_less_disk_than_its_largest_file(steps):
    site = yaml.safe_load((steps.folder / "site.yaml").read_text())
    site["shapes"]["transfer"] = {**site["shapes"]["transfer"], "scratch": "1Mi"}
    (steps.folder / "site.yaml").write_text(yaml.safe_dump(site))
    _, planned = steps.plan(repo=REPO)

    process = steps.start("download", "--release", release_uri(planned))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (SMALL_DISK_BYTES, SMALL_DISK_BYTES))
    said, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0, said
    assert stored(steps, planned) == PARTS
