import hashlib
import http.client
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from huggingface_hub.errors import HfHubHTTPError

from tests.support import plain_http
from tests.support.waiting import PATIENCE_S

MIB = 1024 * 1024
WEIGHTS = bytes(range(256)) * (12 * MIB // 256)  # the client keeps what it has in steps of 10 MiB


@pytest.fixture(scope="module")
def running(write_repository, start_hub):
    write_repository(
        "acme/tiny",
        {"refs": {"branches": {"main": "r1"}}, "revisions": [{"name": "r1", "files": "r1"}]},
        r1={"model.safetensors": WEIGHTS, "config.json": b"{}" * 1000},
    )
    write_repository(
        "acme/slow",
        {"refs": {"branches": {"main": "r1"}}, "revisions": [{"name": "r1", "files": "r1"}]},
        r1={"config.json": b"{}" * 1000},
    )
    write_repository(
        "acme/wide",
        {"refs": {"branches": {"main": "one"}}, "revisions": [{"name": "one", "files": "one"}]},
        one={"first.bin": b"1" * 2_000_000, "second.bin": b"2" * 2_000_000},
    )
    return start_hub()


@pytest.fixture
def hub(running):
    return running.begin()


def download(hub, folder, file="model.safetensors"):
    return Path(hub.api().hf_hub_download("acme/tiny", file, cache_dir=folder)).read_bytes()


def ask(hub, file, **headers):
    return plain_http.get(f"{hub.endpoint}/acme/tiny/resolve/main/{file}", headers=headers)


def test_a_cut_download_is_resumed_where_it_stopped(hub, tmp_path):
    hub.switch_on(repo="acme/tiny", file="*.safetensors", kind="cut", after_bytes=11 * MIB, times=1)

    assert download(hub, tmp_path) == WEIGHTS
    cut, resumed = hub.requests("GET", "/model.safetensors")
    assert (cut["status"], cut["bytes"], cut["range"]) == (200, 11 * MIB, None)
    assert resumed["status"] == 206
    assert resumed["range"] == f"bytes={len(WEIGHTS) - resumed['bytes']}-"
    assert 0 < resumed["bytes"] < len(WEIGHTS)


def test_the_client_gets_over_a_5xx_on_metadata(hub, tmp_path):
    hub.switch_on(repo="acme/*", file="config.json", kind="status", status=503, on=["head"], times=1)

    assert download(hub, tmp_path, "config.json") == b"{}" * 1000
    assert [line["status"] for line in hub.requests("HEAD", "/config.json")] == [503, 200]


def test_a_5xx_on_the_body_fails_once_and_then_succeeds(hub, tmp_path):
    hub.switch_on(repo="acme/tiny", file="config.json", kind="status", status=500, on=["get"], times=1)

    with pytest.raises(HfHubHTTPError) as failure:
        download(hub, tmp_path, "config.json")

    assert failure.value.response.status_code == 500
    assert download(hub, tmp_path, "config.json") == b"{}" * 1000


def test_the_api_can_be_down(hub):
    hub.switch_on(repo="acme/tiny", kind="status", status=502, on=["api"], times=1)

    with pytest.raises(HfHubHTTPError):
        hub.api().model_info("acme/tiny")
    assert hub.api().model_info("acme/tiny").id == "acme/tiny"


def test_corrupt_bytes_have_the_right_length_and_the_wrong_digest(hub, tmp_path):
    hub.switch_on(repo="acme/tiny", file="model.safetensors", kind="corrupt", after_bytes=5 * MIB + 3)

    content = download(hub, tmp_path)

    assert len(content) == len(WEIGHTS)
    assert [index for index in range(5 * MIB, 5 * MIB + 9) if content[index] != WEIGHTS[index]] == [5 * MIB + 3]
    assert hashlib.sha256(content).hexdigest() != hashlib.sha256(WEIGHTS).hexdigest()


def test_a_slow_download_is_whole(hub, tmp_path):
    hub.switch_on(repo="acme/tiny", file="config.json", kind="slow", bytes_per_s=20_000)

    assert download(hub, tmp_path, "config.json") == b"{}" * 1000


def test_a_slow_file_is_overtaken_by_others(hub, tmp_path):
    hub.switch_on(repo="acme/slow", file="config.json", kind="slow", bytes_per_s=10)  # over 200 s

    with plain_http.stream("GET", f"{hub.endpoint}/acme/slow/resolve/main/config.json", timeout=PATIENCE_S) as slow:
        chunks = slow.iter_raw()
        received = len(next(chunks))
        assert download(hub, tmp_path) == WEIGHTS
        received += len(next(chunks))

    assert received < 2000


def test_files_share_the_bandwidth_of_a_hub(running, start_hub):
    hub = start_hub("fast", "--bytes-per-s", "5000000")

    with ThreadPoolExecutor(2) as threads:
        address = f"{hub.endpoint}/acme/wide/resolve/main"
        answers = list(threads.map(plain_http.get, (f"{address}/first.bin", f"{address}/second.bin")))

    assert [answer.content for answer in answers] == [b"1" * 2_000_000, b"2" * 2_000_000]


def test_the_bandwidth_that_one_file_uses_is_missing_to_another(running, start_hub):
    hub = start_hub("narrow", "--bytes-per-s", "1000")  # the first 256 KiB come at once, and use it for four minutes
    address = f"{hub.endpoint}/acme/wide/resolve/main"

    with plain_http.stream("GET", f"{address}/first.bin", timeout=PATIENCE_S) as first:
        assert next(first.iter_raw())[:1] == b"1"
        with closing(http.client.HTTPConnection("127.0.0.1", hub.announced["port"], timeout=PATIENCE_S)) as second:
            second.request("GET", "/acme/wide/resolve/main/second.bin")
            assert second.getresponse().status == 200
            second.sock.settimeout(1)
            with pytest.raises(TimeoutError):
                second.sock.recv(1)


def test_faults_end_when_they_are_cleared(hub, tmp_path):
    hub.switch_on(repo="*", kind="status", status=503)
    hub.admin("DELETE")

    assert download(hub, tmp_path, "config.json") == b"{}" * 1000


def test_faults_need_the_admin_token(hub):
    assert hub.admin("POST", {"repo": "*", "kind": "status"}, token="guessed") == 401
    assert ask(hub, "config.json").status_code == 200


def test_a_fault_that_cannot_work_is_refused(hub):
    assert hub.admin("POST", {"repo": "*", "kind": "slow"}) == 400
    assert hub.admin("POST", {"repo": "*", "kind": "cut", "after": 1}) == 400


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("bytes=0-1", b"{}"), ("bytes=1999-", b"}"), ("bytes=-3", b"}{}"), ("bytes=1998-9999", b"{}")],
)
def test_a_range_gives_just_those_bytes(hub, asked, expected):
    answer = ask(hub, "config.json", Range=asked)

    assert (answer.status_code, answer.content) == (206, expected)
    assert answer.headers["Content-Range"].endswith("/2000")


def test_a_range_behind_the_end_is_not_satisfiable(hub):
    answer = ask(hub, "config.json", Range="bytes=2000-")

    assert (answer.status_code, answer.headers["Content-Range"]) == (416, "bytes */2000")
