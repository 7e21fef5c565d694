"""Plan and download, as pods run them, of the demo model in a folder of an object store."""

import hashlib
import json
import os

import boto3
import pytest

from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY

MODEL = REPOSITORY / "tests" / "fixtures" / "hub" / "slipway" / "demo-llama" / "v1"
BUCKET = "slipway-test-models"
FOLDER = "mirror/demo-llama"
URI = f"s3://{BUCKET}/{FOLDER}"
NO_HUB = "http://127.0.0.1:9"


@pytest.fixture
def bucket(object_store, credentials):
    """Another bucket of the same store with the demo model in a folder; empty again afterwards."""
    if "SLIPWAY_SITE" in os.environ:
        pytest.skip("the tests make a bucket only at a server of their own")
    keys = {name.lower(): credentials[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    bucket = boto3.resource("s3", endpoint_url=object_store.endpoint, region_name=object_store.region, **keys).Bucket(
        BUCKET
    )
    bucket.create()
    for path in MODEL.iterdir():
        bucket.upload_file(str(path), f"{FOLDER}/{path.name}")
    yield bucket
    bucket.objects.delete()


@pytest.fixture
def planned(steps, bucket):
    """Plan's result, at a site whose Hub does not answer."""
    steps.write_site(steps.place.model_dump(mode="json"), NO_HUB)
    code, result = steps.plan(source={"uri": URI})
    assert code == 0, steps.said
    return result


def test_a_model_in_another_bucket_is_planned_and_stored_without_a_hub(steps, planned):
    assert f"{URI} is commit {planned['data']['commit'][:12]}" in steps.said

    assert steps.run("download", "--release", planned["release"]) == 0

    key = planned["data"]["stages"]["download"]["key"]
    manifest = steps.read(f"artifacts/download/{key}/manifest.json")
    for file in manifest["files"]:
        data = steps.store.read_bytes(f"{steps.place.root}/artifacts/download/{key}/{file['path']}")
        assert data == (MODEL / file["path"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file["path"] for file in manifest["files"]}
    assert (manifest["producer"]["repo"], manifest["producer"]["commit"]) == (URI, planned["data"]["commit"])
    assert steps.termination.read_text().startswith(f"download: {URI}@")


def test_a_look_as_on_a_laptop_pins_the_same(steps, planned):
    spec, seen = json.dumps({**SPEC, "source": {"uri": URI}}), steps.folder / "preview.json"

    assert steps.run("plan", "--spec", spec, "--run", "look", "--look", str(seen)) == 0

    looked = json.loads(seen.read_text())["plan"]
    assert looked["source"] == planned["data"]["plan"]["source"]
    assert looked["release_id"] == planned["data"]["release_id"]


def test_an_object_that_changed_after_plan_ends_download_by_name(steps, planned, bucket):
    name = "model.safetensors"
    bucket.put_object(Key=f"{FOLDER}/{name}", Body=b"\0" * (MODEL / name).stat().st_size)

    assert steps.run("download", "--release", planned["release"]) == 65

    assert f"{URI}/{name} changed after it was planned" in steps.termination.read_text()
    key = planned["data"]["stages"]["download"]["key"]
    assert f"artifacts/download/{key}/{name}" not in steps.keys("artifacts/download/")
