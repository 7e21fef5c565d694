from pathlib import Path

import pytest
from huggingface_hub.errors import GatedRepoError

GOOD, OTHER = "hf_fixture_reader", "hf_fixture_stranger"


@pytest.fixture(scope="module")
def running(write_repository, start_hub):
    write_repository(
        "acme/gated",
        {
            "gated": True,
            "tokens": [GOOD],
            "refs": {"branches": {"main": "r1"}},
            "revisions": [{"name": "r1", "files": "r1"}],
        },
        r1={"config.json": b"{}"},
    )
    return start_hub()


@pytest.fixture
def hub(running):
    return running.begin()


@pytest.mark.parametrize(("token", "status"), [(False, 401), (OTHER, 403)])
def test_files_of_a_gated_repository_are_refused(hub, tmp_path, token, status):
    with pytest.raises(GatedRepoError) as refusal:
        hub.api(token).hf_hub_download("acme/gated", "config.json", cache_dir=tmp_path)

    assert refusal.value.response.status_code == status


@pytest.mark.parametrize(("token", "status"), [(False, 401), (OTHER, 403)])
def test_an_access_check_says_so_before_any_download(hub, token, status):
    with pytest.raises(GatedRepoError) as refusal:
        hub.api(token).auth_check("acme/gated")

    assert refusal.value.response.status_code == status


def test_a_token_with_access_reads_the_files(hub, tmp_path):
    hub.api(GOOD).auth_check("acme/gated")

    assert Path(hub.api(GOOD).hf_hub_download("acme/gated", "config.json", cache_dir=tmp_path)).read_bytes() == b"{}"


def test_the_file_list_of_a_gated_repository_is_open_as_on_the_real_hub(hub):
    info = hub.api().model_info("acme/gated", files_metadata=True)

    assert info.gated == "manual"
    assert [sibling.rfilename for sibling in info.siblings] == ["config.json"]


def test_no_token_reaches_a_log(hub, tmp_path):
    hub.api(GOOD).hf_hub_download("acme/gated", "config.json", cache_dir=tmp_path)

    assert hub.requests("GET", "/config.json")
    log = (hub.state / "access.jsonl").read_text()
    assert GOOD not in log
    assert hub.announced["admin_token"] not in log + hub.said
