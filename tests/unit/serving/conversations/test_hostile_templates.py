"""Chat templates that strangers wrote, and arguments that strangers send: what one may take is limited."""

import pytest
from generation.model_files.chat_template import ChatTemplate
from generation.requests.question import RefusedError
from generation.settings import SettingsError
from generation.workers.preparers import PREPARERS

ASKS = "{{ messages[0].content }}"
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
DEEP = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"
DOUBLES = "{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
HOSTILE = [
    (ENDLESS, r"took more than 2 s of a CPU"),
    (DEEP, "recursion"),
    (DOUBLES, "MemoryError"),
    ("{{ 'a' * 10**10 }}", "MemoryError"),
    ("{{ 'a' * 10**6 }}", "1000005 characters; the limit"),
    ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
    ("{{ 9**(9**9) }}", r"took more than 2 s of a CPU"),
    ("{{ '%999999999999d' | format(1) }}", "MemoryError"),
    (r"{{ '\ud800' }}", "surrogates not allowed"),
]
ARGUED = (
    "{% if n is defined %}{% for i in range(n) %}{% for j in range(n) %}{% endfor %}{% endfor %}{{ w * n }}{% endif %}"
)


@pytest.mark.parametrize(("hostile", "said"), HOSTILE)
def test_a_hostile_template_is_refused_within_its_limits_and_the_next_one_is_rendered(hostile, said, monkeypatch):
    asked, ask = [], PREPARERS.ask
    monkeypatch.setattr(PREPARERS, "ask", lambda task: asked.append(task) or ask(task))

    with pytest.raises(SettingsError, match=said):
        ChatTemplate(hostile + ASKS, {})

    attempts = [task for task in asked if "given" in task]
    assert len(attempts) < 2 or "took more" not in said, "the message in parts takes as long as the text"
    assert ChatTemplate(ASKS, {}).wrap("Hi") == "Hi"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n": 99_999, "w": "x"}, r"^the chat template took more than 2 s of a CPU with 'Hi'"),
        ({"n": 10**9, "w": "x"}, r"^the chat template does not take 'Hi': Range too big"),
        ({"n": 999, "w": "x" * 1000}, r"^the chat template does not take 'Hi': .* characters; the limit"),
    ],
)
def test_a_clients_arguments_are_refused_within_the_limits_and_the_next_request_is_rendered(arguments, said):
    template = ChatTemplate(ARGUED + ASKS, {})
    with pytest.raises(RefusedError, match=said):
        template.wrap("Hi", arguments)

    assert template.wrap("Hi", {"n": 2, "w": "x"}) == "xxHi"


def test_a_long_conversation_is_rendered_whole():
    turns = [{"role": "user", "content": f"{number}" * 100} for number in range(4096)]
    rendered = ChatTemplate("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}", {}).render(turns)

    assert rendered == "".join(f"user{turn['content']}" for turn in turns)
