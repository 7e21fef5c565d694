"""What a store may have the reader of a document keep in memory."""

from http.server import BaseHTTPRequestHandler

import pytest
from urllib3.exceptions import SSLError

from slipway.tasks.adapters.store.object_store import LARGEST_WHOLE_BYTES
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.adapters.store.s3_errors import S3Errors
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.site import ObjectStoreSite
from tests.fakes.servers.loopback_server import LoopbackServer


class Endless(BaseHTTPRequestHandler):
    """Announces an object that is too large, and sends none of it."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(LARGEST_WHOLE_BYTES + 1))
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_document_that_is_too_large_is_refused_before_it_is_read():
    with LoopbackServer(Endless) as server:
        site = ObjectStoreSite(bucket="models", endpoint=server.endpoint)
        store = S3ObjectStore(site, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})

        with pytest.raises(InputError) as refused:
            store.read_bytes("s3://models/channels/demo.json")

    assert refused.value.found == f"{LARGEST_WHOLE_BYTES + 1} bytes"
    assert "s3://models/channels/demo.json" in refused.value.what


class WithoutABucket(BaseHTTPRequestHandler):
    """Has no such object, and hangs up when it is asked for the bucket."""

    def do_HEAD(self):
        if self.path.endswith("demo.json"):
            self.send_response(404)
            self.end_headers()
        self.close_connection = True

    def log_message(self, *_):
        pass


def test_a_store_that_goes_away_before_it_tells_of_the_bucket_is_unavailable():
    with LoopbackServer(WithoutABucket) as server:
        site = ObjectStoreSite(bucket="models", endpoint=server.endpoint)
        store = S3ObjectStore(site, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})

        with pytest.raises(UnavailableError):
            store.describe("s3://models/channels/demo.json")


def test_a_connection_that_breaks_while_a_document_is_read_is_an_error_of_the_store():
    with pytest.raises(UnavailableError) as caught, S3Errors(None, "the store").translated("s3://b/k"):
        raise SSLError("decryption failed or bad record mac")

    assert caught.value.found.startswith("SSLError")


def test_a_profile_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "no-such")

    with pytest.raises(InputError) as caught:
        S3ObjectStore(ObjectStoreSite(bucket="models"))

    assert "no-such" in caught.value.found
    assert "AWS_PROFILE" in caught.value.remedy
