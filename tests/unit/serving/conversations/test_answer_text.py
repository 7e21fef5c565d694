from generation.answers.answer_text import AnswerText, StopWords
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fakes.servers.generation_runtime import ByteTokenizer

END = 0
WORDS = st.lists(st.text("ab", min_size=1, max_size=3), max_size=3)


def answered(reports, *, max_tokens=1000, stop_words=()):
    """Pieces, whole text and finish reason of an answer whose tokens come as in `reports`."""
    answer = AnswerText(ByteTokenizer(), [END], max_tokens, stop_words)
    pieces = [answer.add(tokens) for tokens in reports]
    last, reason = answer.end()
    return [*pieces, last], "".join([*pieces, last]), reason


def one_by_one(text):
    return [[token] for token in text.encode()]


def test_an_answer_ends_by_the_token_that_ends_it_or_by_its_absence():
    assert answered([*one_by_one("Hi."), [END]])[1:] == ("Hi.", "stop")
    assert answered(one_by_one("Hi."))[1:] == ("Hi.", "stop")


def test_an_answer_that_filled_its_room_was_cut():
    assert answered(one_by_one("Hi."), max_tokens=3)[1:] == ("Hi.", "length")
    assert answered([*one_by_one("Hi"), [END]], max_tokens=3)[1:] == ("Hi", "stop")


def test_what_follows_the_end_is_not_looked_at():
    assert answered([[*b"Hi", END, *b" and more"], [*b"!"]])[1:] == ("Hi", "stop")


def test_a_stream_gives_whole_characters_only():
    pieces, text, _ = answered(one_by_one("日本 😀!"))

    assert text == "日本 😀!"
    assert not any("\ufffd" in piece for piece in pieces)


def test_nothing_of_a_stop_word_shows_though_it_comes_in_parts():
    pieces, text, reason = answered(one_by_one("one\nUser: two"), stop_words=["\nUser:"])

    assert (text, reason) == ("one", "stop")
    assert pieces[:3] == ["o", "n", "e"]


def test_what_only_began_like_a_stop_word_comes_after_all():
    assert answered(one_by_one("one\nUse"), stop_words=["\nUser:"])[1] == "one\nUse"


def test_a_stop_word_in_the_last_token_of_the_room_is_a_stop():
    assert answered(one_by_one("one."), max_tokens=4, stop_words=["."])[1:] == ("one", "stop")


@settings(max_examples=100)
@example("baa", ["a", "baa"], [2])
@given(st.text("abc", max_size=30), WORDS, st.lists(st.integers(1, 4), max_size=30))
def test_text_ends_before_the_first_complete_stop_word_however_it_is_cut_into_pieces(text, words, sizes):
    stop, given_out, rest = StopWords(words), "", text
    for size in sizes:
        given_out += stop.advance(rest[:size], final=False)
        rest = rest[size:]
    given_out += stop.advance(rest, final=True)
    complete = next((end for end in range(len(text) + 1) if any(text[:end].endswith(word) for word in words)), None)
    ended_by = [word for word in words if complete is not None and text[:complete].endswith(word)]

    assert given_out == (text if complete is None else text[: complete - max(map(len, ended_by))])
    assert stop.found == max(ended_by, key=len, default="")
