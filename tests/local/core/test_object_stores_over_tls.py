"""Over TLS, Amazon S3 gets checksums after each body, and every other store what it takes and checks."""

import os

import boto3
import pytest

from local.cluster import certificate
from tasks.adapters.object_store import LostRaceError
from tasks.adapters.s3 import S3ObjectStore
from tests.fakes.object_store_contract import LARGE, ObjectStoreContract
from tests.fakes.tls_s3 import LimitedS3, passing_everything


@pytest.fixture
def tls(tmp_path_factory, monkeypatch):
    if "SLIPWAY_SITE" in os.environ:
        pytest.skip("puts TLS before a server of the tests' own")
    folder = tmp_path_factory.mktemp("tls")
    _, context = certificate.ensure(folder, "object store")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(folder / "server.crt"))
    return context


@pytest.fixture
def amazon(place, tls, monkeypatch):
    """A site without an endpoint, so on Amazon S3, which boto3 is told to look for on loopback."""
    with passing_everything(place.endpoint, tls) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        yield place.model_copy(update={"endpoint": None})


class TestLimitedS3(ObjectStoreContract):
    @pytest.fixture
    def store(self, place, tls):
        with LimitedS3(place.endpoint, tls) as limited:
            yield S3ObjectStore(place.model_copy(update={"endpoint": limited.endpoint}))

    @pytest.fixture
    def root(self, place):
        return place.root

    def test_a_write_between_the_refusal_of_quotes_and_the_second_try_is_not_lost(self, store, root):
        etag = store.put_if(f"{root}/channel", b"first", etag=None)
        looked = store._client.head_object

        def overtaken(**address):
            answer = looked(**address)
            store.put_bytes(f"{root}/channel", b"theirs")
            return answer

        store._client.head_object = overtaken
        with pytest.raises(LostRaceError):
            store.put_if(f"{root}/channel", b"ours", etag=etag)

        assert store.read_bytes(f"{root}/channel") == b"theirs"


class TestAmazonS3(ObjectStoreContract):
    @pytest.fixture
    def store(self, amazon):
        return S3ObjectStore(amazon)

    @pytest.fixture
    def root(self, place):
        return place.root


@pytest.mark.parametrize("size_bytes", [5, LARGE])
def test_amazon_s3_gets_a_crc32_of_each_file(amazon, tmp_path, size_bytes):
    (tmp_path / "file").write_bytes(b"x" * size_bytes)
    store = S3ObjectStore(amazon)

    store.put_file(tmp_path / "file", f"{amazon.root}/file")

    key = f"{amazon.prefix}/file"
    head = boto3.client("s3").head_object(Bucket=amazon.bucket, Key=key, ChecksumMode="ENABLED")
    assert head["ContentLength"] == size_bytes
    assert "ChecksumCRC32" in head
