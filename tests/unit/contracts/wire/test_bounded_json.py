"""What a stranger's JSON may be before anybody works with it."""

import json
from functools import partial

import pytest

from slipway.tasks.contracts.wire.bounded_json import Bounds, BoundsError, NotJsonError, check, read
from tests.support.seeds import dice

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
        ("[" * 90 + "]" * 90, "levels deep"),
        ("[" * 101 + "not read", "more than 100 values"),
        ('{"a":' * 51 + "not read", "more than 100 values"),
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


def value(rolled, depth):
    """A value of JSON, with texts that hold what separates values."""
    kind = rolled.choice("tntloe" if depth else "tn")
    if kind in "lo":
        members = [value(rolled, depth - 1) for _ in range(rolled.randint(1, 4))]
        return members if kind == "l" else {f'{n}:,["\\': each for n, each in enumerate(members)}
    return {"t": rolled.choice(['a, b: [{"c"}]', "\\", '"', "[1", "\n{"]), "n": rolled.choice([1.5, None])}.get(
        kind, []
    )


def counted(given):
    """How many values a value has, as they are counted once they were read."""
    return next(count for count in range(1, 10_000) if not refuses(partial(check, given, of(count))))


@pytest.mark.parametrize("indent", [None, 1])
def test_values_are_counted_alike_before_and_after_a_text_is_read(indent):
    rolled = dice()
    for _ in range(200):
        given = [value(rolled, 4), {}]
        text, exact = json.dumps(given, indent=indent).replace("[]", "[ \n]"), counted(given)

        assert read(text, of(exact)) == given
        assert refuses(partial(read, text, of(exact - 1))), text


def of(values):
    return Bounds(chars=10**6, values=values)


def refuses(work):
    try:
        work()
    except BoundsError:
        return True
    return False


@pytest.mark.parametrize("piece", ['\\"', '"', "[ ", "{\t", '"\\', ' "a'])
def test_no_text_takes_the_count_of_its_values_long(piece):
    """A pattern that looked at what follows each piece would take minutes: the text has half a million of them."""
    text = '["' + piece * 500_000 + "," * 101

    with pytest.raises(BoundsError):
        read(text, Bounds(chars=10**7, values=100))
