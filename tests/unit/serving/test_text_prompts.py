"""Prompts for an engine that tokenizes texts itself: vLLM's tokens are those that the chat template means."""

import json
import shutil

import pytest
from generation.hf_tokenizer import HuggingFaceTokenizer
from generation.question import Question, RefusedError
from generation.settings import SettingsError
from generation.text_prompt import TextPrompts
from tokenizers import Tokenizer

from tests.support.paths import HUB

CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"
BEGINS = {"SpecialToken": {"id": "<s>", "type_id": 0}}
ENDS = {"SpecialToken": {"id": "</s>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
WITHOUT_BOS = "{% for message in messages %}<|user|>{{ message['content'] }}{% endfor %}<|assistant|>"
TURNS = (
    {"role": "user", "content": "Hi?"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "Go."},
)


@pytest.fixture
def checkpoint(tmp_path):
    """A function that gives a tokenizer as the engine has it, and the prompts for it."""

    def make(added=(BEGINS, TEXT), template=None, *, chat=True, pre_tokenizer=None):
        for file in CHECKPOINT.iterdir():
            if file.suffix in {".json", ".jinja"}:
                shutil.copy(file, tmp_path)
        tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
        tokenizer["post_processor"]["single"] = list(added)
        tokenizer["post_processor"]["special_tokens"]["</s>"] = {"id": "</s>", "ids": [1], "tokens": ["</s>"]}
        tokenizer["pre_tokenizer"] = pre_tokenizer or tokenizer["pre_tokenizer"]
        (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
        if template is not None:
            (tmp_path / "chat_template.jinja").write_text(template)
        engine = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        return engine, TextPrompts(HuggingFaceTokenizer(tmp_path, chat=chat))

    return make


def read(engine, text):
    """What vLLM makes of a text."""
    return engine.encode(text, add_special_tokens=True).ids


@pytest.mark.parametrize("question", [Question("Hi?"), Question("", messages=TURNS)], ids=["question", "conversation"])
def test_the_token_that_begins_a_text_is_left_to_the_engine(checkpoint, question):
    engine, prompts = checkpoint()
    text, tokens = prompts.prompt(question)

    assert "<s>" not in text
    assert read(engine, text) == tokens == engine.encode(f"<s>{text}", add_special_tokens=False).ids
    assert tokens.count(0) == 1


def test_a_template_that_does_not_write_it_gets_the_one_that_the_engine_adds(checkpoint):
    engine, prompts = checkpoint(template=WITHOUT_BOS)
    text, tokens = prompts.prompt(Question("Hi?"))

    assert text == "<|user|>Hi?<|assistant|>"
    assert (read(engine, text), tokens.count(0)) == (tokens, 1)


def test_where_the_tokenizer_adds_nothing_the_template_s_own_stays(checkpoint):
    engine, prompts = checkpoint(added=(TEXT,))
    text, tokens = prompts.prompt(Question("Hi?"))

    assert text.startswith("<s><|user|>")
    assert (read(engine, text), tokens.count(0)) == (tokens, 1)


def test_a_token_in_the_middle_is_the_users(checkpoint):
    _, prompts = checkpoint()

    assert prompts.prompt(Question("<s>Hi?"))[0] == "<|user|><s>Hi?<|assistant|>"


def test_without_a_chat_template_a_text_stays_and_messages_are_refused(checkpoint):
    engine, prompts = checkpoint(chat=False)

    text, tokens = prompts.prompt(Question("Hi?"))
    assert (text, read(engine, text)) == ("Hi?", tokens)
    with pytest.raises(RefusedError, match="applies no chat template"):
        prompts.prompt(Question("", messages=TURNS))


def test_a_tokenizer_that_ends_every_text_is_refused_when_the_model_loads(checkpoint):
    with pytest.raises(SettingsError, match="ends every text with a special token"):
        checkpoint(added=(BEGINS, TEXT, ENDS))


def test_a_template_whose_first_words_would_be_read_differently_is_refused_when_the_model_loads(checkpoint):
    """A tokenizer that puts a space before the first word of a text reads it otherwise without the token before it."""
    spaced = {"type": "Metaspace", "replacement": "o", "prepend_scheme": "first", "split": False}
    plain = "{{ bos_token }}{{ messages[0].content }}"

    with pytest.raises(SettingsError, match="Set chat_template to none"):
        checkpoint(template=plain, pre_tokenizer=spaced)


@pytest.mark.parametrize("question", [Question("Hi?"), Question("", messages=TURNS)], ids=["question", "conversation"])
def test_a_text_that_the_engine_reads_as_written_keeps_the_token_that_begins_it(checkpoint, tmp_path, question):
    """Gemma 4: vLLM adds no special tokens to its prompts."""
    engine, _ = checkpoint()
    text, tokens = TextPrompts(HuggingFaceTokenizer(tmp_path, chat=True), as_written=True).prompt(question)

    assert text.startswith("<s>")
    assert tokens == engine.encode(text, add_special_tokens=False).ids
    assert tokens.count(0) == 1
