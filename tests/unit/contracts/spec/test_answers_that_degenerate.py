"""Which answers are empty and which loop: outputs of broken models, and harmless texts that look alike."""

import pytest

from slipway.tasks.contracts.spec.answer_text import ends_in_a_loop, is_empty

LOOPS = {
    "the demo's model with noise on its weights": "One dozenOne dozen has2S2 Greece dozen items dozen items dozen items "
    "dozen items dozen items dozen dozen dozen dozen items dozen items dozen dozen dozen dozen dozen dozen",
    "NaN logits, token 0 of many vocabularies": "!" * 32,
    "one word": "The capital of France is the the the the the the the the the the the the the",
    "a sentence, cut": "It is a city. It is the largest city in the world. " * 4 + "It is a city. It",
    "thoughts": "<think>Wait, let me check again.\n\n" * 20,
    "an end token as text": "Paris.<|im_end|><|im_end|><|im_end|><|im_end|><|im_end|>",
    "Chinese": "中国的首都是" + "北京" * 20,
    "Arabic": "العاصمة هي " + "باريس و" * 8,
    "Thai, without spaces": "กรุงเทพ" * 6,
    "emoji of several code points": "Sure! " + "👨‍👩‍👧" * 12,
    "digits": "3." + "0" * 40,
    "replaced bytes": "�" * 64,
    "a list of the same item": "- apples\n" * 6,
    "lines of code": "x = 1\n" + "    return None\n" * 5,
    "a rule that never ends": "| a | b |\n|" + "---|" * 60,
}
HARMLESS = {
    "the demo's damaged revision, wrong without a loop": "The capital of Austria is  Austria is na.",
    "nothing": "",
    "a sentence": "The capital of France is Paris.",
    "one repeated word": "No, no, no, no!",
    "laughter": "ha ha ha ha ha",
    "a list": "".join(f"{number}. item number {number}\n" for number in range(1, 40)),
    "a count": " ".join(map(str, range(60))),
    "a large number": "1" + "0" * 24,
    "a fraction": "0.3333333333333333",
    "a matrix of zeros": "[" + ", ".join(["0"] * 50) + "]",
    "code": "def f(x):\n    if x:\n        return {\n            1: {2: {3: {}}},\n        }\n    return {}\n",
    "closing brackets": '{"a": {"b": {"c": [' + "1" + "\n]}\n}\n}",
    "a heading's line": "Results\n" + "=" * 80,
    "a table": "| name | a | b | c |\n|------|---|---|---|\n| x | 1 | 2 | 3 |\n",
    "the line below a table": "+----------" * 7 + "+",
    "a loop that ended": "the " * 40 + "end of the story, which goes on with other words.",
    "Japanese": "東京は日本の首都であり、世界でも有数の大都市である。人口は約一千四百万人に達する。",
    "Hindi": "भारत की राजधानी नई दिल्ली है, और यह देश के उत्तर में स्थित है।",
    "a refrain of three": "We will rock you. " * 3,
    "base64": "c2xpcHdheSB0YWtlcyBhIGxhbmd1YWdlIG1vZGVsIGZyb20gYSByZXZpc2lvbg==",
}


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
def test_a_loop_at_the_end_of_an_answer_is_found(text):
    assert ends_in_a_loop(text)


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
def test_a_text_that_repeats_a_little_is_no_loop(text):
    assert not ends_in_a_loop(text)


@pytest.mark.parametrize("length", [1, 3, 20, 2048])
def test_a_loop_has_four_copies_of_pieces_up_to_a_quarter_of_what_is_searched(length):
    piece = "".join(chr(0x4E00 + number) for number in range(length))
    copies = max(4, -(-32 // length))

    assert ends_in_a_loop("before " + piece * copies)
    assert not ends_in_a_loop("before " + piece * (copies - 1))


def test_a_long_answer_is_searched_at_its_end_only():
    longer = "".join(chr(0x4E00 + number) for number in range(2049))

    assert not ends_in_a_loop(longer * 5)


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        ("", True),
        (" \n\t", True),
        ("\u200b\ufeff", True),
        ("<think>So many thoughts", True),
        ("<think>Four?</think>\n\n", True),
        ("<think></think>4", False),
        (".", False),
        ("🙂", False),
        ("�", False),
    ],
)
def test_an_answer_without_anything_visible_is_empty(text, empty):
    assert is_empty(text) is empty
