from generation.answers.text_stream import WINDOW_TOKENS, TextStream
from hypothesis import given, settings
from hypothesis import strategies as st


def decode(tokens):
    return bytes(tokens).decode("utf-8", errors="replace")


def streamed(tokens):
    """The pieces a client gets of `tokens`, one token a step."""
    stream, pieces = TextStream(), []
    for position, token in enumerate(tokens):
        stream.add([token])
        pieces.append(stream.advance(decode(stream.window), final=position == len(tokens) - 1))
        if stream.is_long:
            stream.cut(decode(stream.kept()))
    return pieces


@settings(max_examples=50)
@given(st.text(min_size=1, max_size=300).filter(lambda text: "\ufffd" not in text))
def test_pieces_are_whole_characters_and_together_the_text(text):
    pieces = streamed(text.encode("utf-8"))

    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=200))
def test_bytes_that_are_no_text_still_come_through(tokens):
    pieces = streamed(tokens)

    assert "".join(pieces).rstrip("\ufffd").replace("\ufffd", "") == decode(tokens).replace("\ufffd", "")


def test_the_window_stays_short_however_long_the_answer():
    stream, longest = TextStream(), 0
    for token in ("ab cd é " * 500).encode():
        stream.add([token])
        stream.advance(decode(stream.window), final=False)
        longest = max(longest, len(stream.window))
        if stream.is_long:
            stream.cut(decode(stream.kept()))

    assert longest <= WINDOW_TOKENS


def test_what_was_given_out_stays_when_a_decoder_tidies_spaces():
    stream = TextStream()
    pieces = [stream.advance(text, final=False) for text in ("Hi ", "Hi.", "Hi. Bye")]

    assert pieces == ["Hi ", ".", " Bye"]
