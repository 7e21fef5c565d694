"""Which stores get checksums after a body: Amazon S3 alone, by whatever address the site names it."""

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
