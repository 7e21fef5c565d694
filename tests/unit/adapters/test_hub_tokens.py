"""Tokens as Secrets hold them, which often end in a line break."""

import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.hub.hub import HuggingFaceHub
from slipway.tasks.contracts.errors import InputError

NOWHERE = "http://127.0.0.1:9"


def test_the_line_break_at_the_end_of_a_secret_is_no_part_of_the_token():
    assert HuggingFaceHub(NOWHERE, "hf_token\n", SystemClock()).token == "hf_token"


@pytest.mark.parametrize("token", ["-----BEGIN KEY-----\nMIIEsecret", "hf_secret\x00", "hf_sécret", "two secrets"])
def test_what_no_header_can_hold_is_refused_without_showing_it(token):
    with pytest.raises(InputError) as caught:
        HuggingFaceHub(NOWHERE, token, SystemClock())

    assert "source.token_secret" in caught.value.what
    assert not any(word in str(caught.value) for word in ("BEGIN", "MIIE", "hf_", "two secrets"))
