"""What a stranger's JSON may be before anybody works with it."""

import json

import pytest

from slipway.tasks.contracts.wire.bounded_json import Bounds, BoundsError, NotJsonError, read

BOUNDS = Bounds(chars=200_000, depth=5, values=100)


@pytest.mark.parametrize(
    "text", ['{"a": [1, -2.5, true, null, "\\ud83d\\ude00 é"]}', "18446744073709551616", "1e308", "[[[[[1]]]]]"]
)
def test_json_within_bounds_is_read_as_it_is(text):
    assert read(text, BOUNDS) == json.loads(text) == read(text.encode(), BOUNDS)


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", '{"a": -Infinity}', "[1,]", b"\xff", b"\xed\xa0\x80", '"\x00"', '{"a": 1, "a": 2}']
)
def test_what_is_not_json_is_refused_as_such(text):
    with pytest.raises(NotJsonError):
        read(text, BOUNDS)


def test_a_byte_order_mark_is_no_part_of_a_text():
    assert read(b"\xef\xbb\xbf[1]", BOUNDS) == [1]


def test_the_last_of_repeated_names_counts_where_a_model_writes_them():
    assert read('{"a": 1, "a": 2}', Bounds(chars=100, repeated_names=True)) == {"a": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1" + "0" * 400, "whole numbers"),
        ("-" + "9" * 20_000, "whole numbers"),
        ("1e999", "too large for a double"),
        ("0." + "1" * 5000, "too long"),
        (r'{"a": "\ud800"}', "surrogate"),
        (r'{"\udc00": 1}', "surrogate"),
        ("[" * 6 + "1" + "]" * 6, "levels deep"),
        ("[" * 50_000, "levels deep"),
        ("[" + "[]," * 100 + "1]", "more than 100 values"),
        (json.dumps({str(n): n for n in range(60)}), "more than 100 values"),
        (" " * 200_001, "200001 characters"),
    ],
)
def test_json_beyond_its_bounds_is_refused(text, said):
    with pytest.raises(BoundsError, match=said) as refused:
        read(text, BOUNDS)

    assert not isinstance(refused.value, NotJsonError)
    assert len(str(refused.value)) < 200
