"""An expected text beside the given one: where they differ, within a bound on what is compared."""

import re

from hypothesis import given
from hypothesis import strategies as st

from slipway.cli.ask.batch_files import Prompt, Result
from slipway.cli.ask.comparison_page import Pair, page
from slipway.tasks.contracts.redaction import MESSAGE_CHARS
from slipway.tasks.pages.differences import COMPARED, pieces

TEXTS = st.lists(st.sampled_from(["a", "b", "Paris", " ", "  ", "\n"]), max_size=30).map("".join)


@given(TEXTS, TEXTS)
def test_the_pieces_are_the_whole_text_and_equal_texts_do_not_differ(text, other):
    assert "".join(piece.text for piece in pieces(text, other)) == text
    assert not any(piece.differs for piece in pieces(text, text))


def marked(text, other):
    return "".join(piece.text for piece in pieces(text, other) if piece.differs)


def test_a_word_before_many_equal_ones_is_the_only_difference():
    words = " ".join(str(number) for number in range(300))

    assert marked(f"So {words}", words) == "So "
    assert marked(words, f"So {words}") == ""
    assert marked(f"{words} indeed", words) == " indeed"


def test_words_that_repeat_are_compared_in_their_beginning_alone():
    repeated = "a b " * 200

    assert len(marked(f"x {repeated}y", "z")) == COMPARED
    assert not pieces(f"x {repeated}y", "z")[-1].differs


def test_a_long_word_comes_in_pieces_that_a_page_shows_whole():
    word = "x" * (2 * MESSAGE_CHARS + 1)

    assert [len(piece.text) for piece in pieces(word, "y", 1 << 20)] == [MESSAGE_CHARS, MESSAGE_CHARS, 1]


def test_the_page_of_a_comparison_has_all_of_a_prompt_and_of_an_answer():
    prompt, words = "p" * 9000, ("a" * 9000, "b" * 9000)
    one = Result(id="1", request="0" * 16, answer="", finish_reason="stop", first_piece_s=0.1, seconds=0.2)
    answers = tuple(one.model_copy(update={"answer": text}) for text in words)

    shown = page([Pair(Prompt(prompt=prompt), answers)], ("first", "second"), [])

    text = re.sub(r"</?mark>", "", shown)
    assert all(each in text for each in (prompt, *words))
