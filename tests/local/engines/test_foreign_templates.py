"""A tokenizer is a stranger's document."""

import pytest

from slipway.tasks.adapters.triton.tokens import TokenCounter
from tests.support.refused import refused


@pytest.mark.parametrize("data", [b"", b"null", b"{}", b"[]", b"\xff\xfe", b'{"version": "9"}', b"[" * 10_000])
def test_a_tokenizer_that_is_none_is_wrong_input(data):
    with refused(what="tokenizer.json"):
        TokenCounter(data)
