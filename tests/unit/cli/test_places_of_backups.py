"""Where `slipway export --to` writes, and which addresses it refuses instead of making a folder of that name."""

from pathlib import Path

import pytest

from slipway.cli.files.backup import place
from slipway.tasks.contracts.errors import InputError


@pytest.mark.parametrize("text", ["gs://backup/slipway", "S3://backup/slipway", "file:///backup", "https://x/y"])
def test_an_address_that_is_no_folder_and_no_bucket_is_refused(text):
    with pytest.raises(InputError) as caught:
        place(None, text)

    assert caught.value.found == f"{text.partition(':')[0]}://"
    assert "s3://BUCKET/PREFIX" in caught.value.expected


@pytest.mark.parametrize(("text", "folder"), [("~/b", "b"), ("~", "."), ("{home}/a:b", "a:b")])
def test_a_folder_may_begin_with_the_home_folder(text, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    root = place(None, text.format(home=tmp_path)).layout.root

    assert Path(root.removeprefix("file://")) == tmp_path / folder


def test_the_home_folder_of_nobody_is_refused():
    with pytest.raises(InputError):
        place(None, "~nobody-has-this-name/backup")
