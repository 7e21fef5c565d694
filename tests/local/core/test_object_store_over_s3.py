"""S3 keeps the promises of the protocol, and its refusals become errors that a person can act on."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tasks.adapters.object_store import LostRaceError, NotFoundError, S3ObjectStore
from tasks.contracts.errors import InputError, UnavailableError
from tasks.contracts.site import ObjectStoreSite
from tests.fakes.object_store_contract import ObjectStoreContract


class TestS3ObjectStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, bucket):
        return S3ObjectStore(bucket)

    @pytest.fixture
    def root(self, bucket):
        return f"s3://{bucket.bucket}/test"


@pytest.fixture
def refusing(credentials):
    """A store whose server answers everything with one status and code."""
    servers = []

    def start(status, code):
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                self.send_header("Content-Length", "0" if self.command == "HEAD" else str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_HEAD = answer  # noqa: N815 - the names that the server calls

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return S3ObjectStore(ObjectStoreSite(bucket="wares", endpoint=f"http://127.0.0.1:{server.server_port}"))

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


CALLS = {
    "read": lambda store, path: store.read_bytes("s3://wares/a"),
    "describe": lambda store, path: store.describe("s3://wares/a"),
    "put": lambda store, path: store.put_bytes("s3://wares/a", b""),
    "upload": lambda store, path: store.put_file(path, "s3://wares/a"),
    "download": lambda store, path: store.get_file("s3://wares/a", path),
    "copy": lambda store, path: store.copy("s3://wares/a", "s3://wares/b"),
    "list": lambda store, path: list(store.list("s3://wares/a")),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "InvalidAccessKeyId", InputError),
        (403, "SignatureDoesNotMatch", InputError),
        (403, "AccessDenied", InputError),
        (503, "SlowDown", UnavailableError),
    ],
)
def test_a_refusal_is_told_apart_from_a_busy_store(refusing, tmp_path, call, status, code, expected):
    (tmp_path / "file").write_bytes(b"x")

    with pytest.raises(expected) as refused:
        CALLS[call](refusing(status, code), tmp_path / "file")

    assert "http://127.0.0.1" in str(refused.value)
    assert "wares" in str(refused.value)


def test_credentials_that_ran_out_may_come_back(refusing):
    with pytest.raises(UnavailableError, match="ExpiredToken"):
        refusing(400, "ExpiredToken").read_bytes("s3://wares/a")


def test_another_region_is_named_as_such(refusing):
    with pytest.raises(InputError, match=r"another region.*object_store\.region"):
        refusing(400, "AuthorizationHeaderMalformed").read_bytes("s3://wares/a")


@pytest.mark.parametrize("call", CALLS)
def test_a_bucket_that_does_not_exist_is_named_with_its_endpoint(s3_endpoint, credentials, tmp_path, call):
    (tmp_path / "file").write_bytes(b"x")
    store = S3ObjectStore(ObjectStoreSite(bucket="wares", endpoint=s3_endpoint))

    with pytest.raises(InputError, match=f"bucket wares does not exist at {s3_endpoint}"):
        CALLS[call](store, tmp_path / "file")


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_is_down_is_unavailable(credentials, tmp_path, call):
    (tmp_path / "file").write_bytes(b"x")
    store = S3ObjectStore(ObjectStoreSite(bucket="wares", endpoint="http://127.0.0.1:9"))

    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:9 does not answer"):
        CALLS[call](store, tmp_path / "file")


def test_missing_credentials_may_still_come(monkeypatch, credentials, s3_endpoint):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    store = S3ObjectStore(ObjectStoreSite(bucket="wares", endpoint=s3_endpoint))

    with pytest.raises(UnavailableError, match="no credentials"):
        store.read_bytes("s3://wares/a")


@pytest.mark.parametrize("uri", ["", "wares/a", "s3://", "s3://wares", "https://wares/a"])
def test_what_is_no_address_is_refused(refusing, uri):
    with pytest.raises(InputError, match="no object's address"):
        refusing(200, "x").read_bytes(uri)


def test_a_race_is_no_missing_object():
    assert not issubclass(LostRaceError, NotFoundError)
