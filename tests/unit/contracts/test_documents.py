"""The one reader of specs and sites: what it refuses, in words, before it could do harm."""

import itertools
import os
import re
from pathlib import Path

import pytest
import yaml

from slipway.tasks.contracts import documents
from slipway.tasks.contracts.base import parse_json, read_contract
from slipway.tasks.contracts.documents import parse_document
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.redaction import MESSAGE_CHARS
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.document_files import read_document
from tests.fakes.releases import SPEC
from tests.support.refused import refused

TEXT = yaml.safe_dump(SPEC)


def refusal(data):
    with pytest.raises(InputError) as caught:
        parse_document(data if isinstance(data, bytes) else data.encode(), "a.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("# caf\xe9\na: 1\n".encode("latin-1"), "a.yaml:1: byte 5 is not UTF-8"),
        ("a: 1".encode("utf-16"), "not UTF-8"),
        ("a: 1\na: 2\n", "a.yaml:2:1: not valid YAML: the key a occurs twice"),
        ("gate: {x: {b: 1, b: 2}}", "the key b occurs twice"),
        ("a: 1\n---\nb: 2\n", "a.yaml:2 begins a second document"),
        ("&a [*a]", "an alias has no complete anchor before it"),
        ("a: *x", "an alias has no complete anchor before it"),
        ("a: &a [1]\nb: {<<: *a, <<: *a}", "the key (a key not shown"),
        ("a: !!binary aGk=", "a tag such as !!binary"),
        ("a: !!python/object/apply:os.system [id]", "a tag such as !!binary"),
        ("a: ! x", "a tag such as !!binary"),
        ("[" * 100_000, "nested more than 20 deep"),
        ("- " * 100_000, "nested more than 20 deep"),
        ("a: [" + "1," * 30_000 + "]", "more than 20000 values"),
        ("a: " + "9" * 5000, "a number has 5000 digits"),
        ("a: 0x" + "f" * 5000, "a number has 5002 digits"),
        ("a: 9007199254740993", "above 2^53"),
        ("a: .inf", ".inf is not a finite number"),
        ("a: -.INF", "not a finite number"),
        ("a: .nan", "not a finite number"),
        ("a: 1.0e+400", "not a finite number"),
        ("a: 0b_", "looks like a number but is not one"),
        ("1: a", "a key is a int, expected text"),
        ("true: a", "a key is a bool, expected text"),
        ("? [a, b]\n: c", "a key is a list, expected text"),
        ("a: [", "a.yaml:2:1: not valid YAML"),
        ("a: \tb: c", "not valid YAML"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_could_do_harm_is_refused_where_it_is(data, what):
    assert what in refusal(data).what


@pytest.mark.parametrize(
    ("data", "character"), [('a: "\\0"', "U+0000"), ('"\\e[2J": a', "U+001B"), ('a: "\\x7f"', "U+007F")]
)
def test_a_character_that_is_not_printable_is_refused_by_its_number(data, character):
    assert refusal(data).found == character


def test_a_document_that_is_too_long_is_refused_with_the_limit():
    assert refusal(b"a" * (documents.MAX_BYTES + 1)).expected == "at most 1048576 bytes"


def test_a_billion_laughs_are_refused_before_the_first():
    laughs = "a: &a [lol, lol]\n" + "".join(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in itertools.pairwise("abcdefghi")
    )

    assert re.match(r"a.yaml:[56]: nested more than 20 deep, or more than 20000 values", refusal(laughs).what)


def test_aliases_do_not_nest_what_could_not_be_nested_without_them():
    names = [f"a{number}" for number in range(25)]
    nested = f"{names[0]}: &{names[0]} [1]\n" + "".join(f"{b}: &{b} [*{a}]\n" for a, b in itertools.pairwise(names))

    assert "nested more than 20 deep" in refusal(nested).what


def test_an_alias_within_the_limits_stands_for_its_value():
    assert parse_document(b"a: &x {b: [1]}\nc: [*x, *x]\n", "a.yaml")["c"] == [{"b": [1]}] * 2


@pytest.mark.parametrize("text", ["2026-02-30", "2026-02-28", "2026-01-01T00:00:00Z", "=", "<<"])
def test_what_yaml_takes_for_a_date_or_a_merge_is_text(text):
    assert parse_document(f"revision: {text}\n{text}: b".encode(), "a.yaml") == {"revision": text, text: "b"}


def test_a_byte_order_mark_is_taken():
    assert parse_document(b"\xef\xbb\xbf" + TEXT.encode(), "a.yaml") == SPEC


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"a": 1, "a": 2}', "occurs twice"),
        ('{"a": Infinity}', "Infinity is not a number"),
        ('{"a": 1e400}', "too large for a double"),
        ("[" * 100_000, "more than 100 levels deep"),
        (b"\xff", "is not UTF-8"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_json_is_read_as_strictly(text, what):
    with refused(what=what):
        parse_json(text, "plan.json")


def test_a_file_that_is_not_one_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")

    for name in ("fifo.yaml", "folder.yaml", "loop.yaml", "absent.yaml"):
        with pytest.raises(InputError) as caught:
            read_document(tmp_path / name)
        assert name in caught.value.what
    with pytest.raises(InputError) as caught:
        read_document(tmp_path / "fifo.yaml")
    assert caught.value.what.endswith("is not a regular file")


def test_a_file_without_end_is_read_to_the_limit_and_no_further():
    with pytest.raises(InputError) as caught:
        read_document(Path("/dev/zero"))

    assert caught.value.what == "/dev/zero is not a regular file"


TOKENS = ["hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "AKIAIOSFODNN7EXAMPLE", "a8f5f167f44f4964e6c998dee827110c"]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "place",
    [
        lambda token: {**SPEC, "source": {**SPEC["source"], token: "x"}},
        lambda token: {**SPEC, token: "x"},
        lambda token: {**SPEC, "name": {token: "x"}},
        lambda token: {**SPEC, "engine": {**SPEC["engine"], "options": {f"{token} ": 1}}},
    ],
)
def test_a_token_pasted_as_a_key_is_not_shown(token, place):
    with pytest.raises(InputError) as caught:
        read_contract(ReleaseSpec, place(token), "a.yaml")

    assert token[:12] not in str(caught.value)


def test_a_token_in_a_repeated_key_is_not_shown():
    assert TOKENS[2] not in str(refusal(f"{TOKENS[2]}: 1\n{TOKENS[2]}: 2\n"))


@pytest.mark.parametrize(
    "document",
    [
        {**SPEC, "gate": {**SPEC["gate"], "expect": [{"metric": "x" * 900}] * 190}},
        {**SPEC, **{f"key{'x' * number}": 1 for number in range(900)}},
        {**SPEC, "name": "x" * 500_000},
        {**SPEC, "name": ["x" * 500_000]},
        {**SPEC, "engine": {**SPEC["engine"], "lora": [{"name": "a"}] * 15_000}},
    ],
)
def test_a_message_is_short_and_ends_with_what_to_do(document):
    with pytest.raises(InputError) as caught:
        read_contract(ReleaseSpec, document, "a.yaml")

    assert len(str(caught.value)) <= MESSAGE_CHARS
    assert str(caught.value).endswith(ReleaseSpec.if_invalid)


def test_a_message_can_be_stored_whatever_a_file_is_called():
    message = str(InputError("specs/caf\udce9.yaml is wrong"))

    assert message.encode() == b"specs/caf\\udce9.yaml is wrong"
