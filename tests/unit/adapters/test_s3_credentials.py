"""What the adapter to S3 says when there are no credentials."""

import pytest

from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.site.site import ObjectStoreSite


def test_missing_credentials_name_the_ways_of_a_person_and_of_a_pod(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = S3ObjectStore(ObjectStoreSite(bucket="models", endpoint="http://127.0.0.1:9"))

    with pytest.raises(UnavailableError) as caught:
        store.read_bytes("s3://models/a")

    for way in ("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "object_store.credentials_secret"):
        assert way in caught.value.remedy
