"""The prompt of a request to Slipway's models: a question, a conversation, or a text as it is."""

import json

import pytest
from generation.model_files.chat_template import ChatTemplate
from generation.requests.conversation import prompt_of, read_messages
from generation.requests.question import Question, RefusedError, check
from generation.settings import Limits

TURNS = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Who?"},
)
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class NamedPrompts:
    """A tokenizer whose ids are words that say which way was taken."""

    vocabulary_size = 10

    def encode(self, question, template_arguments):
        return ["question", question, *template_arguments]

    def encode_messages(self, messages, template_arguments, tools=()):
        return ["messages", *(message["content"] for message in messages), *template_arguments]

    def encode_prompt(self, text):
        return ["prompt", text]


def test_every_turn_of_a_conversation_reaches_the_template_in_order():
    rendered = ChatTemplate(TEMPLATE, {"bos_token": "<s>"}).render(TURNS)

    assert rendered == "<s><system>Be brief.<user>Hi<assistant>Hello<user>Who?<assistant>"


def test_a_conversation_that_the_template_does_not_take_is_refused_in_its_words():
    template = ChatTemplate("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", {})

    with pytest.raises(RefusedError, match=r"does not take 'Who\?': no system"):
        template.render(TURNS)


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        (TEMPLATE, "<system>Be brief.\n\nNever run rm.<user>Hi<assistant>"),
        (f"{TEMPLATE}{{# 'developer' #}}", "<system>Be brief.<user>Hi<developer>Never run rm.<assistant>"),
        (f'{TEMPLATE}{{# "developer" #}}', "<system>Be brief.<user>Hi<developer>Never run rm.<assistant>"),
    ],
)
def test_a_template_that_knows_no_developer_is_told_his_words_as_the_system_s(source, rendered):
    messages = [*TURNS[:2], {"role": "developer", "content": "Never run rm."}]

    assert ChatTemplate(source, {"bos_token": ""}).render(messages) == rendered


def test_the_system_s_messages_stay_where_they_are_without_a_developer_s():
    messages = [*TURNS[:2], {"role": "system", "content": "In French."}]
    rendered = ChatTemplate(TEMPLATE, {"bos_token": ""}).render(messages)

    assert rendered == "<system>Be brief.<user>Hi<system>In French.<assistant>"


@pytest.mark.parametrize(
    ("question", "prompt"),
    [
        (Question("Hi"), ["question", "Hi"]),
        (Question("Hi", apply_chat_template=True), ["question", "Hi"]),
        (Question("Hi", apply_chat_template=False), ["prompt", "Hi"]),
        (Question("", prompt_ids=(0, 9)), (0, 9)),
        (Question("", prompt_ids=(3,), apply_chat_template=False), (3,)),
        (Question("", messages=TURNS), ["messages", "Be brief.", "Hi", "Hello", "Who?"]),
        (Question("Hi", template_arguments={"thinking": False}), ["question", "Hi", "thinking"]),
        (Question("", messages=TURNS[1:2], template_arguments={"thinking": False}), ["messages", "Hi", "thinking"]),
    ],
)
def test_a_request_says_how_its_prompt_is_made(question, prompt):
    check(question, Limits(100, 200, 9), 16)

    assert prompt_of(question, NamedPrompts()) == prompt


def test_arguments_of_a_template_that_is_not_applied_are_refused():
    with pytest.raises(RefusedError, match="no effect"):
        prompt_of(Question("Hi", apply_chat_template=False, template_arguments={"thinking": False}), NamedPrompts())


def test_a_template_that_takes_parts_gets_every_turn_in_parts():
    template = ChatTemplate("{% for m in messages %}{{ m.role }}={{ m.content[0].text }};{% endfor %}", {})

    assert template.render(TURNS[:2]) == "system=Be brief.;user=Hi;"


def test_arguments_of_a_request_reach_the_template_with_the_messages():
    template = ChatTemplate("{{ tone }}:{{ messages[0].content }}", {}, {"tone": "plain"})

    assert template.render(TURNS[:1]) == "plain:Be brief."
    assert template.render(TURNS[:1], {"tone": "rude"}) == "rude:Be brief."


def test_text_and_messages_together_are_refused():
    with pytest.raises(RefusedError, match="both given"):
        check(Question("Hi", messages=TURNS), Limits(100, 200, 9), 16)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "[]", "{}", "[1]", '"hi"', "[" * 100_000),
        *map(json.dumps, ([{"role": "user"}], [{"content": "x"}], [{"role": "user", "content": None}])),
        json.dumps([TURNS[0], {"role": "user", "content": [{"type": "text", "text": "x"}]}]),
    ],
)
def test_messages_are_a_list_of_roles_and_texts(text):
    with pytest.raises(RefusedError, match=r"^messages"):
        read_messages(text)


def test_what_else_a_message_says_is_kept_for_the_template():
    assert read_messages(json.dumps([{**TURNS[1], "name": "Ann"}])) == ({**TURNS[1], "name": "Ann"},)


@pytest.mark.parametrize("ids", [(10,), (0, 10), (-1,)])
def test_a_token_that_the_vocabulary_lacks_is_refused_before_the_engine_looks_it_up(ids):
    with pytest.raises(RefusedError, match="vocabulary of this model has 0 to 9"):
        prompt_of(Question("", prompt_ids=ids), NamedPrompts())
