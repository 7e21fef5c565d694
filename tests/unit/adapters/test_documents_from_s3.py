"""What a store may have the reader of a document keep in memory."""

from http.server import BaseHTTPRequestHandler

import pytest

from slipway.tasks.adapters.store.object_store import LARGEST_WHOLE_BYTES
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import ObjectStoreSite
from tests.fakes.loopback_server import LoopbackServer


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
