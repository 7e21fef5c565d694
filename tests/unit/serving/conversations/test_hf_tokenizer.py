"""The checkpoint's own tokenizer and chat template, as GPU engines use them."""

import json
import shutil

import pytest
from generation.model_files.chat_template import ChatTemplate, read_chat_template
from generation.model_files.hf_tokenizer import HuggingFaceTokenizer
from generation.requests.question import RefusedError
from generation.settings import SettingsError

from tests.support.paths import HUB

CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"
BOS, EOS, PAD, USER, ASSISTANT = range(5)


@pytest.fixture
def folder(tmp_path):
    """A copy of the demo model's tokenizer files, to be changed."""
    for file in CHECKPOINT.iterdir():
        if file.suffix in {".json", ".jinja"}:
            shutil.copy(file, tmp_path)
    return tmp_path


def change(file, **changed):
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({name: value for name, value in {**known, **changed}.items() if value is not None}))


def test_a_question_is_wrapped_by_the_chat_template_and_gets_one_bos():
    ids = HuggingFaceTokenizer(CHECKPOINT, chat=True).encode("Hello")

    assert (ids[0], ids[1], ids[-1]) == (BOS, USER, ASSISTANT)
    assert ids.count(BOS) == 1


def test_every_token_is_within_the_vocabulary_though_ids_have_gaps(folder):
    document = json.loads((folder / "tokenizer.json").read_text())
    document["added_tokens"].append({**document["added_tokens"][0], "id": 5_000, "content": "<|far|>"})
    change(folder / "tokenizer.json", added_tokens=document["added_tokens"])

    tokenizer = HuggingFaceTokenizer(folder, chat=False)

    assert tokenizer.vocabulary_size > max(tokenizer.encode_word("<|far|>Hello"))


def test_without_a_chat_template_the_tokenizer_adds_what_it_adds():
    tokenizer = HuggingFaceTokenizer(CHECKPOINT, chat=False)

    assert tokenizer.encode("Hello") == [BOS, *tokenizer.encode_word("Hello")]


def test_text_comes_back_without_special_tokens():
    tokenizer = HuggingFaceTokenizer(CHECKPOINT, chat=True)
    text = "Wie heißt 東京 😀?"

    assert tokenizer.decode([[*tokenizer.encode(text), EOS], []]) == [text, ""]


def test_an_answer_ends_with_whatever_the_generation_config_names(folder):
    change(folder / "generation_config.json", eos_token_id=[1, 4])

    assert HuggingFaceTokenizer(folder, chat=True).end_ids == tuple(dict.fromkeys([1, 4, EOS]))


@pytest.mark.parametrize("named", [4, [4], []])
def test_the_tokenizers_own_end_counts_beside_those_that_the_generation_config_names(folder, named):
    """A chat model's may name the end of texts alone, while its turns end with the tokenizer's."""
    change(folder / "generation_config.json", eos_token_id=named)

    assert HuggingFaceTokenizer(folder, chat=True).end_ids == ((4, EOS) if named else (EOS,))


def test_without_a_generation_config_the_tokenizers_own_end_counts(folder):
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer = HuggingFaceTokenizer(folder, chat=True)

    assert (tokenizer.end_ids, tokenizer.pad_id, tokenizer.default_max_tokens) == ((EOS,), PAD, None)


def test_a_checkpoint_that_names_no_end_is_refused(folder):
    (folder / "generation_config.json").unlink(missing_ok=True)
    change(folder / "tokenizer_config.json", eos_token=None)

    with pytest.raises(SettingsError, match="does not say what ends an answer"):
        HuggingFaceTokenizer(folder, chat=False)


def test_a_tokenizer_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"tokenizer\.json is not there"):
        HuggingFaceTokenizer(tmp_path, chat=False)


def test_a_checkpoint_without_a_chat_template_is_refused_where_one_is_needed(folder):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    change(folder / "tokenizer_config.json", chat_template=None)

    assert HuggingFaceTokenizer(folder, chat=False).encode("Hello")
    with pytest.raises(SettingsError, match="has no chat template; set chat_template to none"):
        HuggingFaceTokenizer(folder, chat=True)


def test_of_several_templates_the_default_counts_and_a_file_of_its_own_before_them(folder):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    templates = [
        {"name": "tool_use", "template": "tool"},
        {"name": "default", "template": "{{ messages[0].content }}!"},
    ]
    change(folder / "tokenizer_config.json", chat_template=templates)
    assert read_chat_template(folder).wrap("Hello") == "Hello!"

    (folder / "chat_template.jinja").write_text("file: {{ messages[0]['content'] }}")
    assert read_chat_template(folder).wrap("Hello") == "file: Hello"


def test_special_tokens_may_be_objects():
    assert ChatTemplate("{{ bos_token }}{{ messages[0].content }}", {"bos_token": "<s>"}).wrap("Hi") == "<s>Hi"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if %}", "is not valid Jinja2"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_template_that_cannot_take_a_question_is_refused_before_the_first_one(source, message):
    with pytest.raises(SettingsError, match=message):
        ChatTemplate(source, {})


def test_a_question_that_the_template_refuses_is_the_clients_affair():
    picky = ChatTemplate("{% if 'x' in messages[0].content %}{{ raise_exception('no x') }}{% endif %}ok", {})

    assert picky.wrap("Hi") == "ok"
    with pytest.raises(RefusedError, match="no x"):
        picky.wrap("x")


def test_templates_may_use_what_hugging_face_gives_them():
    source = "{% for m in messages %}{{ {'a': 'é<'} | tojson }}{% break %}{% endfor %}{{ strftime_now('%Y') | length }}"

    assert ChatTemplate(source, {}).wrap("Hi") == '{"a": "é<"}4'
