"""An object store that reads: each object is a path, as in S3's path-style addresses."""

import hashlib
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from tests.fakes.servers.loopback_server import LoopbackServer

MISSING = (
    b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>'
)


class StoredObjects(LoopbackServer):
    """Serves `objects`, by bucket and key, within the block."""

    def __init__(self, objects: dict[str, bytes]):
        super().__init__(type("Handler", (_Handler,), {"objects": objects}))


class _Handler(BaseHTTPRequestHandler):
    objects: dict[str, bytes]

    def do_GET(self):
        data = self.objects.get(unquote(urlsplit(self.path).path).lstrip("/"))
        body = MISSING if data is None else data
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Type", "application/xml" if data is None else "application/json")
        self.send_header("ETag", f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
