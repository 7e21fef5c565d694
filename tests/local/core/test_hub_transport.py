import http.server
import threading
from contextlib import contextmanager

import httpx
import pytest

from local.cluster.access import certificate
from slipway.tasks.adapters.hub.hub_transport import transport
from tests.support.waiting import PATIENCE_S

BODY = b"0123456789" * 100_000
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "NO_PROXY", "no_proxy")


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers every GET with BODY, in two halves; /cut ends after the first, /waits waits between them.

    /hints announces its answer by a status of its own, and /named has a header as nginx sends it, in UTF-8.
    """

    protocol_version = "HTTP/1.1"
    go_on = threading.Event()

    def do_GET(self):
        if self.path == "/hints":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n")
            self.go_on.wait(30)
        self.send_response(206, "Partial Content")
        if self.path == "/named":
            self._headers_buffer.append("X-Name: größe.txt\r\n".encode())
        self.send_header("Content-Length", str(len(BODY)))
        self.send_header("X-Client", str(self.client_address[1]))
        self.send_header("X-Twice", "1")
        self.send_header("X-Twice", "2")
        if self.path.startswith("/malformed"):
            self._headers_buffer.append(b"no colon\r\n")
        self.end_headers()
        half = len(BODY) // 2
        self.wfile.write(BODY[:half])
        if self.path == "/cut":
            self.close_connection = True
            return
        if self.path == "/waits":
            self.go_on.wait(30)
        self.wfile.write(BODY[half:])

    def log_message(self, *_):
        pass


@contextmanager
def answering(tls=None):
    Answers.go_on.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        Answers.go_on.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def client(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    with httpx.Client(transport=transport(), timeout=PATIENCE_S) as opened:
        yield opened


@pytest.mark.parametrize("name", PROXIES[:6])
def test_a_proxy_in_the_environment_is_used_as_httpx_does(monkeypatch, client, name):
    monkeypatch.setenv(name, "http://127.0.0.1:3128")

    assert transport() is None


def test_hosts_without_a_proxy_are_no_proxy(monkeypatch, client):
    monkeypatch.setenv("NO_PROXY", "example.com")

    assert transport() is not None


def test_status_headers_and_bytes_arrive_as_they_were_sent(client):
    with answering() as address:
        response = client.get(address)

    assert (response.status_code, response.content) == (206, BODY)
    assert response.headers.get_list("x-twice") == ["1", "2"]


def test_a_header_that_is_not_ascii_arrives_as_it_was_sent(client):
    with answering() as address:
        response = client.get(f"{address}/named")

    assert response.content == BODY
    assert (b"X-Name", "größe.txt".encode()) in response.headers.raw


def test_a_signed_address_is_not_logged_with_malformed_headers(client, caplog):
    with answering() as address:
        client.get(f"{address}/malformed?X-Amz-Signature=secret")

    assert "secret" not in "".join(record.getMessage() for record in caplog.records if record.name != "httpx")


def test_an_answer_that_was_only_announced_is_not_taken_for_that_of_the_next_request(client):
    with answering() as address:
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(f"{address}/hints")
        again = client.get(address)

    assert (again.status_code, again.content) == (206, BODY)


def test_a_connection_is_used_again_once_its_body_was_read(client):
    with answering() as address:
        clients = {client.get(address).headers["x-client"] for _ in range(3)}

    assert len(clients) == 1


def test_a_connection_whose_body_was_not_read_is_not_used_again(client):
    with answering() as address:
        with client.stream("GET", address) as response:
            left = response.headers["x-client"]
        again = client.get(address)

    assert again.headers["x-client"] != left
    assert again.content == BODY


def test_what_has_arrived_is_given_before_the_rest_comes(client):
    with answering() as address, client.stream("GET", f"{address}/waits") as response:
        received = 0
        chunks = response.iter_raw()
        while received < len(BODY) // 2:
            received += len(next(chunks))
        Answers.go_on.set()
        received += sum(len(chunk) for chunk in chunks)

    assert received == len(BODY)


def test_a_body_that_stands_still_is_a_read_timeout(client):
    with answering() as address, pytest.raises(httpx.ReadTimeout):
        client.get(f"{address}/waits", timeout=0.2)


def test_a_body_that_is_cut_is_a_protocol_error(client):
    with answering() as address, pytest.raises(httpx.RemoteProtocolError):
        client.get(f"{address}/cut")


def test_a_closed_port_is_a_connect_error(client):
    with answering() as address:
        pass

    with pytest.raises(httpx.ConnectError):
        client.get(address)


def test_a_server_without_tls_is_a_connect_error(client):
    with answering() as address, pytest.raises(httpx.ConnectError):
        client.get(address.replace("http://", "https://"))


def test_a_certificate_is_trusted_by_the_authorities_that_the_environment_names(client, monkeypatch, tmp_path):
    _, tls = certificate.ensure(tmp_path, "hub")

    with answering(tls) as address:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            client.get(address)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.crt"))
        with httpx.Client(transport=transport(), timeout=PATIENCE_S) as trusting:
            assert trusting.get(address).content == BODY


@pytest.mark.parametrize("address", ["ftp://127.0.0.1/file", "http://[::1"])
def test_an_address_that_cannot_be_asked_is_an_error_of_httpx(client, address):
    with pytest.raises((httpx.UnsupportedProtocol, httpx.InvalidURL)):
        client.get(address)
