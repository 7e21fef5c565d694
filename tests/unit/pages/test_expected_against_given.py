"""An expected text beside the given one: where they differ, within a bound on what is compared."""

from hypothesis import given
from hypothesis import strategies as st

from slipway.tasks.pages.differences import COMPARED, pieces

TEXTS = st.lists(st.sampled_from(["a", "b", "Paris", " ", "  ", "\n"]), max_size=30).map("".join)


@given(TEXTS, TEXTS)
def test_the_pieces_are_the_whole_text_and_equal_texts_do_not_differ(text, other):
    assert "".join(piece.text for piece in pieces(text, other)) == text
    assert not any(piece.differs for piece in pieces(text, text))


def test_words_that_repeat_are_compared_in_their_beginning_alone():
    repeated = "a b " * 500

    *compared, rest = pieces(repeated, f"b {repeated}")

    assert sum(len(piece.text) for piece in compared) == COMPARED
    assert rest.differs
