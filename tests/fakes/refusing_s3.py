"""An S3 server that knows no credentials: it answers every request as Amazon S3 answers an unknown access key.

Moto's server checks no credentials. The answer is S3's own (docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html).
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id you provided does not exist in our records.\
</Message><RequestId>1</RequestId><HostId>1</HostId></Error>"""


class RefusingS3:
    """Listens within the block; `endpoint` says where."""

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def _refuse(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(BODY)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _refuse  # noqa: N815 - the names that http.server calls

    def log_message(self, *_):
        pass
