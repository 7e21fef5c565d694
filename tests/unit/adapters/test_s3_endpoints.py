"""The store's address decides: Amazon S3 gets checksums after a body, and links lead to a bucket's own host."""

import pytest

from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.site.site import ObjectStoreSite


@pytest.mark.parametrize(
    ("endpoint", "calculation"),
    [
        (None, "when_supported"),
        ("https://s3.eu-central-1.amazonaws.com", "when_supported"),
        ("https://bucket.vpce-1a2b-3c4d.s3.us-east-1.vpce.amazonaws.com", "when_supported"),
        ("https://s3.cn-north-1.amazonaws.com.cn", "when_supported"),
        ("https://ceph.corp.example", "when_required"),
        ("https://s3.amazonaws.com.corp.example", "when_required"),
        ("http://127.0.0.1:9000", "when_required"),
    ],
)
def test_amazon_is_known_by_its_address(endpoint, calculation):
    store = S3ObjectStore(ObjectStoreSite(bucket="models", endpoint=endpoint))

    assert store._client.meta.config.request_checksum_calculation == calculation


@pytest.mark.parametrize(
    ("bucket", "endpoint", "page"),
    [
        ("models", None, "https://models.s3.eu-central-1.amazonaws.com/report.html"),
        ("my.models", None, "https://s3.eu-central-1.amazonaws.com/my.models/report.html"),
        ("models", "https://ceph.corp.example", "https://ceph.corp.example/models/report.html"),
    ],
)
def test_a_link_is_to_the_host_of_the_region_which_no_bucket_is_too_new_for(bucket, endpoint, page):
    site = ObjectStoreSite(bucket=bucket, endpoint=endpoint, region="eu-central-1")
    store = S3ObjectStore(site, {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"})

    assert store.link(f"s3://{bucket}/report.html").partition("?")[0] == page
