"""An Airflow behind TLS is trusted by the authorities of this machine, which are read for such a one alone."""

import http.server

import httpx
import pytest

from local.cluster.access import certificate
from slipway.cli.airflow.login import Login
from slipway.cli.airflow.session import Document, Session
from slipway.tasks.contracts.errors import UnavailableError
from tests.fakes.servers.loopback_server import LoopbackServer

LOGIN = Login("user", "password", "token")


class Version(Document):
    version: str


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers every request, or leads to where `elsewhere` says."""

    elsewhere = None

    def do_GET(self):
        body = b'{"version": "3.1.8"}'
        self.send_response(302 if self.elsewhere else 200)
        if self.elsewhere:
            self.send_header("Location", f"{self.elsewhere}{self.path}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture(params=[False, True], ids=["directly", "by a redirect"])
def address(request, tmp_path):
    """Of a server whose certificate signs itself; or of one without TLS, which leads there."""
    _, tls = certificate.ensure(tmp_path, "airflow")
    with LoopbackServer(Handler, tls) as secure:
        leading = type("Leading", (Handler,), {"elsewhere": secure.endpoint})
        with LoopbackServer(leading) as plain:
            yield (plain if request.param else secure).endpoint


def version(address):
    session = Session(address, LOGIN)
    try:
        return session.get(Version, "/api/v2/version").version
    finally:
        session.close()


def test_a_certificate_that_no_authority_signed_is_refused(address):
    with pytest.raises(UnavailableError) as error:
        version(address)

    assert "CERTIFICATE_VERIFY_FAILED" in str(error.value.__cause__)


def test_an_authority_that_the_environment_names_is_trusted(address, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.crt"))

    assert version(address) == "3.1.8"


def test_the_authorities_are_not_read_without_tls(monkeypatch):
    def read(*_):
        raise AssertionError("the authorities are read")

    monkeypatch.setattr(httpx, "create_ssl_context", read)
    with LoopbackServer(Handler) as plain:
        assert version(plain.endpoint) == "3.1.8"
