"""The laptop's S3: who may use it, and what it keeps when it is killed."""

import base64
import hashlib
import os
import resource
import shutil
import signal
import stat
import subprocess
import threading
import zlib
from datetime import UTC, datetime, timedelta

import boto3
import httpx
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from local.object_store.service import LocalObjectStore
from local.stack import ENVIRONMENTS, REPOSITORY
from tests.support import plain_http
from tests.support.ports import free_ports
from tests.support.waiting import until

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "slipway", "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-guesses"}
BUCKET, KEY = "models", "artifacts/a b/weights_%2F.bin"
ODD_KEYS = ("Ã©//x", "/x/", "%C3%A9//x", "é//x")
PART_BYTES = 5 * 2**20


class Server:
    """`python -m local.object_store`, which can be killed and started again."""

    def __init__(self, folder):
        self.folder = folder
        (port,) = free_ports(1)
        self.store = LocalObjectStore(folder, ENVIRONMENTS / "local" / "bin" / "python", port, CREDENTIALS)
        self.endpoint = self.store.endpoint

    def start(self):
        service = self.store.service(REPOSITORY)
        self.process = subprocess.Popen(
            service.command, env=service.environment, cwd=REPOSITORY, stderr=subprocess.DEVNULL
        )
        until(self.answers)
        return self.store.client()

    def answers(self):
        try:
            return plain_http.get(self.endpoint).status_code == 403
        except httpx.TransportError:
            return False

    def limit_files(self, size):
        """No file may grow beyond so many bytes: writing more fails, as on a full disk."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("shared") / "object-store")
    try:
        made.start().create_bucket(Bucket=BUCKET)
        yield made
    finally:
        made.kill()


@pytest.fixture
def server(running):
    """A server that tests share, with an empty bucket."""
    client = running.store.client()
    for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=item["Key"])
    return running


@pytest.fixture
def killed(tmp_path):
    """A server of the test's own, which it may kill."""
    made = Server(tmp_path / "object-store")
    try:
        made.start().create_bucket(Bucket=BUCKET)
        yield made
    finally:
        made.kill()


def refused(server, **credentials):
    """The code with which a client of other credentials is refused."""
    given = {"access": "slipway", "secret": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]} | credentials
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=given["access"],
        aws_secret_access_key=given["secret"],
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}),
    )
    with pytest.raises(ClientError) as error:
        client.put_object(Bucket=BUCKET, Key=KEY, Body=b"{}")
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    return error.value.response["Error"]["Code"]


def signed(server, method="PUT", path=f"/{BUCKET}/key", body=b"data", at=None, **headers):
    """URL, headers and body of a request that is signed with the right credentials."""
    headers = {"X-Amz-Content-SHA256": hashlib.sha256(body).hexdigest()} | headers
    request = AWSRequest(method, f"{server.endpoint}{path}", headers, body)
    request.headers["X-Amz-Date"] = (at or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    request.context["timestamp"] = request.headers["X-Amz-Date"]
    signer = S3SigV4Auth(Credentials(*CREDENTIALS.values()), "s3", "us-east-1")
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    request.headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, "
        f"SignedHeaders={signer.signed_headers(signer.headers_to_sign(request))}, Signature={signature}"
    )
    return {"method": method, "url": f"{server.endpoint}{path}", "headers": dict(request.headers), "content": body}


def test_wrong_credentials_are_refused(server):
    assert refused(server, secret="another") == "SignatureDoesNotMatch"
    assert refused(server, access="somebody") == "InvalidAccessKeyId"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/{BUCKET}"),
        ("PUT", f"/{BUCKET}/{KEY}"),
        ("DELETE", f"/{BUCKET}/{KEY}"),
        ("GET", "/moto-api/data.json"),
        ("POST", "/moto-api/reset"),
        ("POST", "/moto-api/reset-auth"),
        ("GET", "/latest/meta-data/iam/security-credentials/"),
        ("OPTIONS", f"/{BUCKET}"),
    ],
)
def test_requests_without_a_signature_are_refused(server, method, path):
    answer = plain_http.request(method, f"{server.endpoint}{path}")

    assert (answer.status_code, "<Code>AccessDenied</Code>" in answer.text) == (403, True)


def test_the_signed_request_of_these_tests_is_let_in(server):
    assert plain_http.request(**signed(server)).status_code == 200


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"content": b"dato"}, "XAmzContentSHA256Mismatch"),
        ({"method": "POST"}, "SignatureDoesNotMatch"),
        ({"path": f"/{BUCKET}/other"}, "SignatureDoesNotMatch"),
        ({"path": f"/{BUCKET}/key?acl"}, "SignatureDoesNotMatch"),
        ({"header": ("X-Amz-Copy-Source", f"{BUCKET}/key")}, "AccessDenied"),
    ],
)
def test_a_signed_request_that_was_changed_is_refused(server, change, code):
    request = signed(server)
    if "path" in change:
        request["url"] = f"{server.endpoint}{change.pop('path')}"
    if "header" in change:
        request["headers"].update([change.pop("header")])

    answer = plain_http.request(**request | change)

    assert f"<Code>{code}</Code>" in answer.text
    assert "Contents" not in server.store.client().list_objects_v2(Bucket=BUCKET)


def with_trailer(server, body):
    """The answer to a body in chunks of S3's, a checksum after it, in chunks of HTTP's."""
    headers = {
        "X-Amz-Content-SHA256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "X-Amz-Trailer": "x-amz-checksum-crc32",
        "X-Amz-Decoded-Content-Length": "4",
        "Content-Encoding": "aws-chunked",
    }
    request = signed(server, body=body, **headers)
    return plain_http.request(**request | {"content": iter([body[:7], body[7:]])})


CRC32_OF_DATA = base64.b64encode(zlib.crc32(b"data").to_bytes(4, "big"))
SENT = b"4\r\ndata\r\n0\r\nx-amz-checksum-crc32:" + CRC32_OF_DATA + b"\r\n\r\n"


@pytest.mark.parametrize("body", [SENT, SENT.replace(b"4\r\ndata", b"1\r\nd\r\n003\r\nata")])
def test_a_body_with_its_checksum_after_it_is_stored_without_either(server, body):
    assert with_trailer(server, body).status_code == 200

    assert server.store.client().get_object(Bucket=BUCKET, Key="key")["Body"].read() == b"data"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((b"data", b"date"), "BadDigest"),
        ((b"4\r\ndata", b"5\r\ndata!"), "IncompleteBody"),
        ((b"4\r\n", b"-6\r\n"), "IncompleteBody"),
        ((b"4\r\n", b"0x4\r\n"), "IncompleteBody"),
        ((b"data\r\n", b"data"), "IncompleteBody"),
        ((b"\r\n\r\n", b""), "InvalidRequest"),
        ((b"crc32", b"sha1"), "InvalidRequest"),
    ],
)
def test_a_body_that_is_not_what_its_checksum_or_length_says_is_refused(server, change, code):
    answer = with_trailer(server, SENT.replace(*change))

    assert (answer.status_code, f"<Code>{code}</Code>" in answer.text) == (400, True)
    assert "Contents" not in server.store.client().list_objects_v2(Bucket=BUCKET)


def test_a_body_in_chunks_without_the_length_of_its_content_is_refused(server):
    answer = plain_http.request(**signed(server) | {"content": iter([b"data"])})

    assert (answer.status_code, "<Code>MissingContentLength</Code>" in answer.text) == (411, True)


def test_an_old_signed_request_is_refused(server):
    answer = plain_http.request(**signed(server, at=datetime.now(UTC) - timedelta(minutes=16)))

    assert (answer.status_code, "<Code>RequestTimeTooSkewed</Code>" in answer.text) == (403, True)


def test_a_signed_request_does_not_reach_motos_own_api(server):
    server.store.client().put_object(Bucket=BUCKET, Key=KEY, Body=b"kept")

    plain_http.request(**signed(server, "POST", "/moto-api/reset", b""))

    assert server.store.client().get_object(Bucket=BUCKET, Key=KEY)["Body"].read() == b"kept"


def test_what_was_answered_survives_a_kill(killed):
    client = killed.store.client()
    client.put_object(
        Bucket=BUCKET, Key=KEY, Body=b"\0\1", ContentType="text/x-weights", Metadata={"sha256": "12ab", "a_b": "c"}
    )
    upload = client.create_multipart_upload(Bucket=BUCKET, Key="large", ChecksumAlgorithm="SHA256")["UploadId"]
    place, parts = {"Bucket": BUCKET, "Key": "large", "UploadId": upload}, []
    for number, size in ((1, PART_BYTES), (2, 10)):
        part = client.upload_part(**place, PartNumber=number, Body=bytes(size), ChecksumAlgorithm="SHA256")
        parts.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumSHA256": part["ChecksumSHA256"]})
    client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
    client.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": KEY})
    client.put_object(Bucket=BUCKET, Key="gone", Body=b"x")
    client.delete_object(Bucket=BUCKET, Key="gone")
    client.create_bucket(Bucket="gone")
    client.delete_bucket(Bucket="gone")
    for data in (b"old", b"new"):
        for key in ODD_KEYS:
            client.put_object(Bucket=BUCKET, Key=key, Body=data)
    before = described(client)

    killed.kill()
    after = described(killed.start())

    assert set(before) == {KEY, "copy", "large", *ODD_KEYS}
    assert before["large"]["ETag"].endswith('-2"')
    assert after == before
    assert [bucket["Name"] for bucket in killed.store.client().list_buckets()["Buckets"]] == [BUCKET]


@pytest.mark.parametrize("of_before", [False, True], ids=["a line cut off", "an index of 0.1.0's first state"])
def test_an_index_that_a_kill_cut_off_or_an_older_version_wrote_is_read(killed, of_before):
    client = killed.store.client()
    client.put_object(Bucket=BUCKET, Key="kept", Body=b"kept")
    client.put_object(Bucket=BUCKET, Key="gone", Body=b"gone")
    client.delete_object(Bucket=BUCKET, Key="gone")
    before = described(client)
    killed.kill()
    index = killed.folder / "kept" / BUCKET / "index.jsonl"
    lines = index.read_text().splitlines()
    if of_before:
        index.unlink()
        index.with_suffix(".json").write_text(lines[0])
    else:
        index.write_text(index.read_text() + lines[0].replace("kept", "half")[:-9])

    assert described(killed.start()) == before
    assert index.read_text().splitlines() == lines[:1]


def test_a_full_disk_fails_what_does_not_fit_and_leaves_no_half_of_it(killed):
    client, folder = killed.store.client(), killed.folder / "kept" / BUCKET
    client.put_object(Bucket=BUCKET, Key="kept", Body=b"kept")
    files = sorted(folder.iterdir())

    killed.limit_files(4000)
    with pytest.raises(ClientError):
        client.put_object(Bucket=BUCKET, Key="large", Body=bytes(5000))
    assert sorted(folder.iterdir()) == files
    client.delete_object(Bucket=BUCKET, Key="large")
    killed.limit_files((folder / "index.jsonl").stat().st_size + 50)
    with pytest.raises(ClientError):
        client.put_object(Bucket=BUCKET, Key="small", Body=b"small")
    assert sorted(folder.iterdir()) == files

    killed.limit_files(resource.RLIM_INFINITY)
    client.put_object(Bucket=BUCKET, Key="large", Body=bytes(5000))
    before = described(client)
    killed.kill()
    assert described(killed.start()) == before


def described(client):
    """All that a client sees of each object."""
    seen = {}
    for item in client.list_objects_v2(Bucket=BUCKET)["Contents"]:
        answer = client.get_object(Bucket=BUCKET, Key=item["Key"], ChecksumMode="ENABLED")
        body = hashlib.sha256(answer.pop("Body").read()).hexdigest()
        del answer["ResponseMetadata"]
        seen[item["Key"]] = {**answer, "body": body}
    return seen


def test_only_one_of_many_writers_finds_the_object_absent(server):
    ends = []

    def write():
        try:
            server.store.client().put_object(Bucket=BUCKET, Key="channel", Body=os.urandom(2**16), IfNoneMatch="*")
        except ClientError as error:
            ends.append(error.response["Error"]["Code"])
        else:
            ends.append("won")

    writers = [threading.Thread(target=write) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert sorted(ends) == ["PreconditionFailed"] * 7 + ["won"]


def begun(client, *keys):
    return [client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"] for key in keys]


@pytest.fixture
def uploads(server):
    """A client, and its uploads that never end: three of one object, one of another, one elsewhere."""
    client = server.store.client()
    yield client, begun(client, "p/b", "p/b", "p/b", "p/a", "q/a")
    for item in client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
        client.abort_multipart_upload(Bucket=BUCKET, Key=item["Key"], UploadId=item["UploadId"])


def test_incomplete_uploads_are_listed_page_by_page_by_key_and_age(uploads):
    client, (first, second, third, other, _) = uploads

    pages = list(
        client.get_paginator("list_multipart_uploads").paginate(
            Bucket=BUCKET, Prefix="p/", PaginationConfig={"PageSize": 2}
        )
    )

    listed = [(item["Key"], item["UploadId"]) for page in pages for item in page["Uploads"]]
    assert listed[0] == ("p/a", other)
    assert set(listed[1:]) == {("p/b", each) for each in (first, second, third)}
    assert [len(page["Uploads"]) for page in pages] == [2, 2]
    assert all(
        datetime.now(UTC) - item["Initiated"] < timedelta(minutes=5) for page in pages for item in page["Uploads"]
    )


def test_an_upload_is_aborted_only_under_its_own_name(uploads):
    client, identities = uploads

    with pytest.raises(ClientError) as refused_abort:
        client.abort_multipart_upload(Bucket=BUCKET, Key="p/a", UploadId=identities[0])

    assert refused_abort.value.response["Error"]["Code"] == "NoSuchUpload"
    client.abort_multipart_upload(Bucket=BUCKET, Key="p/b", UploadId=identities[0])
    for key in ODD_KEYS:
        begun = client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        client.abort_multipart_upload(Bucket=BUCKET, Key=key, UploadId=begun)
    assert len(client.list_multipart_uploads(Bucket=BUCKET)["Uploads"]) == 4


def test_one_request_deletes_at_most_a_thousand_objects(server):
    client = server.store.client()
    names = [{"Key": f"k{number}"} for number in range(1001)]

    with pytest.raises(ClientError) as refused_delete:
        client.delete_objects(Bucket=BUCKET, Delete={"Objects": names})

    assert refused_delete.value.response["Error"]["Code"] == "MalformedXML"
    client.delete_objects(Bucket=BUCKET, Delete={"Objects": names[:1000]})


def test_nobody_else_can_read_an_object(server):
    server.store.client().put_object(Bucket=BUCKET, Key=KEY, Body=b"private")

    kept = list(server.folder.rglob("*"))

    assert any(path.is_file() and path.read_bytes() == b"private" for path in kept)
    assert [path for path in kept if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_buckets_that_an_older_version_saved_are_taken_over(tmp_path):
    server = Server(tmp_path / "object-store")
    saved = server.folder / "buckets"
    (saved / "older").mkdir(parents=True)
    (saved / "older" / "a%2Fb").write_bytes(b"of before")
    (saved / "older.json").write_text('{"a/b": {"Metadata": {"sha256": "12ab"}, "ContentType": "text/plain"}}')

    copy = shutil.copytree(saved, tmp_path / "copy")
    server.start()
    server.kill()
    # as if the kill had come before the old folder was removed
    shutil.copytree(copy, saved)
    server.start()
    server.kill()
    try:
        found = server.start().get_object(Bucket="older", Key="a/b")
        body = found["Body"].read()
    finally:
        server.kill()

    assert (body, found["Metadata"], found["ContentType"]) == (
        b"of before",
        {"sha256": "12ab"},
        "text/plain",
    )
    assert not saved.exists()
