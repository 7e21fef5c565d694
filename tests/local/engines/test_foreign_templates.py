"""A chat template is a stranger's program: it gets one message, a few CPU seconds and little memory."""

import json
import shutil

import pytest

from tasks.adapters.triton.tokens import TokenCounter
from tasks.contracts.errors import InputError
from tasks.engines.checkpoint.chat_template import check_renders
from tests.support.paths import HUB
from tests.support.refused import refused

CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}x"


@pytest.fixture
def tokenizer(tmp_path):
    """The demo checkpoint's tokenizer with another template."""

    def write(template):
        for file in CHECKPOINT.glob("*token*"):
            shutil.copy(file, tmp_path / file.name)
        shutil.copy(CHECKPOINT / "config.json", tmp_path)
        settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
        return tmp_path

    return write


def test_a_template_that_renders_a_message_is_taken(tokenizer):
    check_renders(tokenizer("{% for message in messages %}{{ message['content'] }}{% endfor %}"))


def test_a_template_that_does_not_end_is_ended_and_refused(tokenizer):
    with refused(what="does not render", found="took more than 1 s of a CPU"):
        check_renders(tokenizer(ENDLESS))


@pytest.mark.parametrize("template", ["{% for", "{{ raise_exception('no users here') }}", "{{ 'x' * 99999999999 }}"])
def test_a_template_that_fails_is_refused_in_its_own_words(tokenizer, template):
    with pytest.raises(InputError) as caught:
        check_renders(tokenizer(template))

    assert "does not render" in caught.value.what
    assert caught.value.found


@pytest.mark.parametrize("data", [b"", b"null", b"{}", b"[]", b"\xff\xfe", b'{"version": "9"}', b"[" * 10_000])
def test_a_tokenizer_that_is_none_is_wrong_input(data):
    with refused(what="tokenizer.json"):
        TokenCounter(data)
