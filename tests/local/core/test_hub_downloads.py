import hashlib
import re

import pytest

from slipway.tasks.adapters.hub.hub import HuggingFaceHub
from slipway.tasks.contracts.errors import DigestMismatchError, InputError, UnavailableError
from tests.fakes.clock import ManualClock
from tests.local.core.servers import FILES, STRANGER, TOKEN, WEIGHTS, download
from tests.support.waiting import PATIENCE_S

WEIGHTS_FILE = "model.safetensors"


@pytest.fixture
def connect(hub):
    """A client of the test's Hub; its pauses take no time."""

    def client(token=None, stall_s=PATIENCE_S, endpoint=None):
        return HuggingFaceHub(endpoint or hub.endpoint, token, ManualClock(), stall_s=stall_s)

    return client


def test_a_revision_is_a_commit_and_announced_digests(connect):
    source = connect().resolve("acme/model", "v1")

    digests = {file.path: file.digest for file in source.files}
    readme = hashlib.sha1(b"blob 5\0about", usedforsecurity=False).hexdigest()
    assert digests[WEIGHTS_FILE] == f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}"
    assert digests["README.md"] == f"git-sha1:{readme}"
    assert source.commit == connect().resolve("acme/model", source.commit).commit


def test_files_arrive_as_they_are(connect, tmp_path):
    client = connect()

    download(client, client.resolve("acme/model", "v1"), tmp_path / "to")

    assert {path.name: path.read_bytes() for path in (tmp_path / "to").iterdir()} == FILES


def test_a_small_file_is_read_without_a_folder_for_it(connect):
    client = connect()

    assert client.read_file(client.resolve("acme/model", "v1"), "README.md") == b"about"


def test_a_file_that_the_source_does_not_take_is_not_read(connect):
    client = connect()

    with pytest.raises(InputError) as caught:
        client.read_file(client.resolve("acme/model", "v1"), "absent.json")

    assert "absent.json" in caught.value.what
    assert caught.value.found == "no such file"


def test_a_file_that_is_too_large_for_memory_is_not_read(connect):
    client = connect()
    source = client.resolve("acme/model", "v1")
    large = tuple(file.model_copy(update={"size_bytes": 2**30}) for file in source.files)

    with pytest.raises(InputError) as caught:
        client.read_file(source.model_copy(update={"files": large}), "README.md")

    assert caught.value.found == "1073741824 bytes"


def test_a_cut_connection_goes_on_where_it_ended(connect, hub, tmp_path):
    client = connect()
    hub.switch_on(repo="acme/model", file=WEIGHTS_FILE, kind="cut", after_bytes=100_000, times=2)

    download(client, client.resolve("acme/model", "v1"), tmp_path)

    assert (tmp_path / WEIGHTS_FILE).read_bytes() == WEIGHTS
    hub.switch_off()
    requests = hub.requests(f"acme/model/{WEIGHTS_FILE}")
    assert len(requests) == 3
    assert requests[0]["range"] is None
    assert requests[1]["range"].startswith("bytes=")
    assert int(requests[2]["range"].removeprefix("bytes=").partition("-")[0]) > 100_000


def test_a_file_that_stands_still_is_given_up(connect, hub, tmp_path):
    source = connect(stall_s=30).resolve("acme/slow", "v1")
    (weights,) = [file for file in source.files if file.path == WEIGHTS_FILE]
    hub.switch_on(repo="acme/slow", file=WEIGHTS_FILE, kind="slow", bytes_per_s=1)
    client = connect(stall_s=0.3)  # only now: its limit is that of all requests of this process

    with pytest.raises(UnavailableError) as caught:
        download(client, source.model_copy(update={"files": (weights,)}), tmp_path)

    assert caught.value.what.endswith(f"of {len(WEIGHTS)} bytes")
    assert "ReadTimeout" in caught.value.found
    assert WEIGHTS_FILE not in {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_hub_is_asked_again(connect, hub, tmp_path, status):
    client = connect()
    source = client.resolve("acme/model", "v1")
    hub.switch_on(repo="acme/model", file=WEIGHTS_FILE, kind="status", status=status, times=2)

    download(client, source, tmp_path)

    assert (tmp_path / WEIGHTS_FILE).read_bytes() == WEIGHTS


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_stays_busy_is_unavailable(connect, hub, tmp_path, status):
    client = connect()
    source = client.resolve("acme/model", "v1")
    hub.switch_on(repo="acme/model", file=WEIGHTS_FILE, kind="status", status=status)

    with pytest.raises(UnavailableError) as caught:
        download(client, source, tmp_path)

    assert f"status {status}" in caught.value.found


def test_bytes_garbled_once_are_downloaded_again(connect, hub, tmp_path):
    client = connect()
    hub.switch_on(repo="acme/model", file=WEIGHTS_FILE, kind="corrupt", after_bytes=5000, times=1)

    download(client, client.resolve("acme/model", "v1"), tmp_path)

    assert (tmp_path / WEIGHTS_FILE).read_bytes() == WEIGHTS


def test_bytes_that_are_never_what_was_announced_are_refused_and_not_kept(connect, tmp_path):
    client = connect()

    with pytest.raises(DigestMismatchError) as caught:
        download(client, client.resolve("acme/model", "wrong-digest"), tmp_path / "to")

    assert WEIGHTS_FILE in caught.value.what
    assert not [path.name for path in (tmp_path / "to").iterdir() if WEIGHTS_FILE in path.name]


def test_an_unknown_repository_is_named(connect):
    with pytest.raises(InputError) as caught:
        connect().resolve("acme/nothing", "main")

    assert caught.value.what.startswith("model acme/nothing does not exist at ")
    assert "no token" in caught.value.what
    assert "source.token_secret" in caught.value.remedy


def test_an_unknown_revision_is_answered_with_those_that_exist(connect):
    with pytest.raises(InputError) as caught:
        connect().resolve("acme/model", "v9")

    assert caught.value.what == "model acme/model has no revision 'v9'"
    assert {"main", "v1"} <= set(re.findall(r"[\w-]+", caught.value.expected))


def test_a_gated_model_without_a_token_says_where_to_put_one(connect, hub):
    with pytest.raises(InputError) as caught:
        connect().resolve("acme/gated", "main")

    assert caught.value.what == "model acme/gated is gated and there is no token"
    assert f"{hub.endpoint}/acme/gated" in caught.value.remedy
    assert "source.token_secret" in caught.value.remedy


def test_a_gated_model_with_a_strangers_token_says_whose_access_is_missing(connect):
    with pytest.raises(InputError) as refused:
        connect(STRANGER).resolve("acme/gated", "main")

    assert "the token of source.token_secret has no access" in refused.value.what
    assert STRANGER not in str(refused.value)


def test_a_token_with_access_reads_a_gated_model(connect, tmp_path):
    client = connect(TOKEN)

    download(client, client.resolve("acme/gated", "main"), tmp_path)

    assert (tmp_path / WEIGHTS_FILE).read_bytes() == WEIGHTS


def test_a_token_of_this_machine_is_not_sent(connect, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    with pytest.raises(InputError) as caught:
        connect().resolve("acme/gated", "main")

    assert caught.value.what.endswith("there is no token")


def test_a_hub_that_is_down_is_unavailable(connect):
    with pytest.raises(UnavailableError) as caught:
        connect(endpoint="http://127.0.0.1:9").resolve("acme/model", "v1")

    assert caught.value.what == "http://127.0.0.1:9 does not answer for model acme/model"


def test_a_hub_that_is_out_of_reach_names_the_policies_that_may_block_it(connect):
    with pytest.raises(UnavailableError) as caught:
        connect(endpoint="http://127.0.0.1:9").resolve("acme/model", "v1")

    assert "hub or site-hub has to allow it: set hub.networks" in caught.value.remedy


def test_a_hub_that_fails_is_unavailable(connect, hub):
    hub.switch_on(repo="acme/model", kind="status", status=502, on=["api"])

    with pytest.raises(UnavailableError) as caught:
        connect().resolve("acme/model", "v1")

    assert "answered 502" in caught.value.what


def test_an_answer_that_no_retry_changes_says_where_to_look(connect, hub):
    hub.switch_on(repo="acme/model", kind="status", status=418, on=["api"])

    with pytest.raises(InputError) as caught:
        connect().resolve("acme/model", "v1")

    assert "answered 418" in caught.value.what
    assert "hub.endpoint" in caught.value.remedy


def test_a_pinned_dataset_is_read_line_by_line(connect):
    client = connect()

    pinned = client.pin_dataset("hf://datasets/acme/questions@main/eval.jsonl")

    assert client.read_dataset(pinned) == [{"prompt": "a", "answer": "b"}, {"prompt": "c", "answer": "d"}]


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("hf://datasets/acme/questions@main/nothing.jsonl", "has no file nothing.jsonl"),
        ("hf://datasets/acme/questions@v9/eval.jsonl", "has no revision 'v9'"),
        ("hf://datasets/acme/nothing@main/eval.jsonl", "dataset acme/nothing does not exist"),
        ("hf://models/acme/model", "invalid address of a dataset file"),
    ],
)
def test_a_dataset_that_is_not_there_is_named(connect, uri, what):
    with pytest.raises(InputError) as caught:
        connect().pin_dataset(uri)

    assert what in caught.value.what


@pytest.mark.parametrize(
    ("name", "problem"), [("broken", "line 2 is not valid JSON"), ("numbers", "line 1 is not an object")]
)
def test_a_broken_line_of_a_dataset_is_named_by_its_number(connect, name, problem):
    client = connect()

    with pytest.raises(InputError) as caught:
        client.read_dataset(client.pin_dataset(f"hf://datasets/acme/questions@main/{name}.jsonl"))

    assert problem in caught.value.what
    assert caught.value.remedy == "Correct the dataset."
