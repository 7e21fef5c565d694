"""TLS before an object store: as Amazon S3 takes requests, and as stores do that implement less of its protocol."""

import asyncio
import base64
import hashlib
import http.client
import ssl
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from urllib.parse import SplitResult, urlsplit

from tests.fakes.servers.loopback_server import LoopbackServer

ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
OWN_HEADERS = ("connection", "date", "server", "transfer-encoding")
CHUNK_BYTES = 2**16


@contextmanager
def passing_everything(endpoint: str, tls: ssl.SSLContext):
    """An address that takes TLS off the bytes and passes them on to `endpoint`."""
    target, loop = urlsplit(endpoint), asyncio.new_event_loop()

    async def pump(source, sink):
        with suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                sink.write(data)
                await sink.drain()

    async def serve(client, to_client):
        store, to_store = await asyncio.open_connection(target.hostname, target.port)
        pumps = asyncio.create_task(pump(client, to_store)), asyncio.create_task(pump(store, to_client))
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task, sink in zip(pumps, (to_store, to_client), strict=True):
                task.cancel()
                sink.transport.abort()

    async def ended():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(ended())
        loop.close()


class LimitedS3(LoopbackServer):
    """Passes on what every store takes, and refuses what some stores refuse, within the block."""

    def __init__(self, endpoint: str, tls: ssl.SSLContext):
        super().__init__(type("Handler", (_Handler,), {"target": urlsplit(endpoint)}), tls)


class _Handler(BaseHTTPRequestHandler):
    """Refuses bodies without Content-Length, DeleteObjects without MD5, and ETags in quotes as a condition.

    Ceph 16.2.15 (all but MD5), Swift 2.30.1 (MD5) and `rclone serve s3` (bodies) refused them when they were tried. So
    do others: github.com/boto/boto3/issues/4398, github.com/storj/gateway-st/issues/89,
    github.com/aws/aws-sdk-js-v3/issues/6920. Bodies are compared with the sha256 that the request's signature names.
    """

    protocol_version = "HTTP/1.1"  # boto3 waits a second for a server of 1.0 to continue
    target: SplitResult

    def _answer(self):
        if self.headers.get("Transfer-Encoding"):
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
            self._refuse(411, "MissingContentLength")
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers["X-Amz-Content-SHA256"] != hashlib.sha256(body).hexdigest():
            self._refuse(400, "XAmzContentSHA256Mismatch")
        elif self.command == "POST" and self.path.endswith("?delete") and self.headers["Content-MD5"] != _md5(body):
            self._refuse(400, "MissingContentMD5" if self.headers["Content-MD5"] is None else "BadDigest")
        elif self.headers.get("If-Match", "").startswith('"'):
            self._refuse(412, "PreconditionFailed")
        else:
            self._pass_on(body)

    def _pass_on(self, body):
        store = http.client.HTTPConnection(self.target.hostname, self.target.port)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        store.request(self.command, self.path, body, headers)
        answer = store.getresponse()
        self._send(answer.status, answer.getheaders(), answer.read())
        store.close()

    def _refuse(self, status, code):
        body = ERROR.format(code=code).encode()
        self._send(status, [("Content-Length", str(len(body)))], body)

    def _send(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in OWN_HEADERS:
                self.send_header(name, value)
        if "content-length" not in {name.lower() for name, _ in headers}:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, *_):
        pass


def _md5(body):
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
