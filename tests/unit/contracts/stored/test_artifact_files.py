import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slipway.tasks.contracts.stored.artifact import File, Layout


def file(path):
    return File(path=path, sha256="0" * 64, size_bytes=0)


@pytest.mark.parametrize("path", ["model.safetensors", "demo/1/model.py", ".gitattributes", "a-b_c.d/e"])
def test_paths_that_triton_can_address_are_taken(path):
    assert file(path).path == path


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../up", "a/../b", "a//b", "a/", ".", "with space", "a\\b", "a\n"])
def test_paths_that_leave_or_cannot_be_addressed_are_refused(path):
    with pytest.raises(ValidationError):
        file(path)


@given(st.text(max_size=30))
def test_whatever_is_taken_stays_inside_and_uses_only_safe_characters(path):
    try:
        taken = file(path).path
    except ValidationError:
        return
    assert re.fullmatch(r"[A-Za-z0-9._/-]+", taken)
    assert ".." not in taken.split("/")
    assert not taken.startswith("/")


def test_a_layout_puts_everything_under_its_root():
    layout = Layout("s3://bucket/prefix")

    assert layout.artifact("build", "k") == "s3://bucket/prefix/artifacts/build/k"
    assert layout.release("demo", "demo-1") == "s3://bucket/prefix/releases/demo/demo-1/release.json"
    assert layout.result("demo", "demo-1", "gate") == "s3://bucket/prefix/releases/demo/demo-1/results/gate.json"
    assert layout.channel("demo") == "s3://bucket/prefix/channels/demo.json"
