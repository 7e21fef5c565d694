"""An object store that reads: each object is a path, as in S3's path-style addresses."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

MISSING = (
    b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>'
)


class StoredObjects:
    """Serves `objects`, by bucket and key, at `endpoint` within the block."""

    def __init__(self, objects: dict[str, bytes]):
        self.objects = objects

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"objects": self.objects}))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


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
