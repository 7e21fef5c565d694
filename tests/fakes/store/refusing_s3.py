"""An S3 server that knows no credentials: it answers every request as Amazon S3 answers an unknown access key.

Moto's server checks no credentials. The answer is S3's own (docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html).
"""

from http.server import BaseHTTPRequestHandler

from tests.fakes.servers.loopback_server import LoopbackServer

BODY = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id you provided does not exist in our records.\
</Message><RequestId>1</RequestId><HostId>1</HostId></Error>"""


class RefusingS3(LoopbackServer):
    """Refuses within the block."""

    def __init__(self):
        super().__init__(_Handler)


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
