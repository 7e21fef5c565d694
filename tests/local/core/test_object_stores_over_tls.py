"""Over TLS, Amazon S3 gets checksums after each body, and every other store what it takes and checks."""

import os

import pytest

from local.cluster.access import certificate
from slipway.tasks.adapters.store.object_store import LostRaceError
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from tests.fakes.store.object_store_contract import LARGE, ObjectStoreContract
from tests.fakes.store.tls_s3 import LimitedS3, passing_everything
from tests.local.core.servers import PLANTED


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    if "SLIPWAY_SITE" in os.environ:
        pytest.skip("puts TLS before a server of the tests' own")
    folder = tmp_path_factory.mktemp("tls")
    _, context = certificate.ensure(folder, "object store")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_CA_BUNDLE", str(folder / "server.crt"))
        yield context


@pytest.fixture(scope="module")
def amazon(object_store, tls):
    """A store without an endpoint, so on Amazon S3, which boto3 is told to look for on loopback."""
    with (
        passing_everything(object_store.endpoint, tls) as address,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("AWS_ENDPOINT_URL_S3", address)
        yield S3ObjectStore(object_store.model_copy(update={"endpoint": None}), PLANTED)


@pytest.fixture(scope="module")
def limited(object_store, tls):
    with LimitedS3(object_store.endpoint, tls) as server:
        yield S3ObjectStore(object_store.model_copy(update={"endpoint": server.endpoint}), PLANTED)


class TestLimitedS3(ObjectStoreContract):
    # pages are the same without TLS: test_object_store_over_s3
    test_more_objects_than_one_request_takes_are_listed_and_deleted = None

    @pytest.fixture
    def store(self, limited):
        return limited

    @pytest.fixture
    def root(self, place):
        return place.root

    def test_a_write_between_the_refusal_of_quotes_and_the_second_try_is_not_lost(self, store, root, monkeypatch):
        etag = store.put_if(f"{root}/channel", b"first", etag=None)
        looked = store._client.head_object

        def overtaken(**address):
            answer = looked(**address)
            store.put_bytes(f"{root}/channel", b"theirs")
            return answer

        monkeypatch.setattr(store._client, "head_object", overtaken)
        with pytest.raises(LostRaceError):
            store.put_if(f"{root}/channel", b"ours", etag=etag)

        assert store.read_bytes(f"{root}/channel") == b"theirs"


class TestAmazonS3(ObjectStoreContract):
    # pages are the same without TLS: test_object_store_over_s3
    test_more_objects_than_one_request_takes_are_listed_and_deleted = None

    @pytest.fixture
    def store(self, amazon):
        return amazon

    @pytest.fixture
    def root(self, place):
        return place.root


@pytest.mark.parametrize("size_bytes", [5, LARGE])
def test_amazon_s3_gets_a_crc32_of_each_file(amazon, place, tmp_path, size_bytes):
    (tmp_path / "file").write_bytes(b"x" * size_bytes)

    amazon.put_file(tmp_path / "file", f"{place.root}/file")

    key = f"{place.prefix}/file"
    head = amazon._client.head_object(Bucket=place.bucket, Key=key, ChecksumMode="ENABLED")
    assert head["ContentLength"] == size_bytes
    assert "ChecksumCRC32" in head
