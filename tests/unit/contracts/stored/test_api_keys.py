"""The file of API keys: what is written is read again, and what is not a key is no key."""

from datetime import UTC, datetime, timedelta

import pytest

from slipway.tasks.contracts.api_keys import NEVER, ApiKey, file_of, new_secret, read_keys, sha256_of_key, time_text

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
KEY = ApiKey("alice", sha256_of_key("sk-a"), time_text(NOW), time_text(NOW + timedelta(seconds=1)))


def test_what_is_written_is_read_again():
    keys = [KEY, ApiKey("b.o-b_2", sha256_of_key("sk-b"), time_text(NOW))]

    assert read_keys(file_of(keys)) == keys


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("alice", "Alice"),
        ("alice", ""),
        ("alice", "a b"),
        (KEY.sha256, "0" * 63),
        (KEY.expires, "soon"),
        ("\n", " x\n"),
    ],
)
def test_what_is_not_a_key_is_skipped(part, other):
    assert read_keys(KEY.line.replace(part, other, 1)) == []


def test_a_key_expires_at_its_second():
    assert not KEY.is_expired(NOW)
    assert KEY.is_expired(NOW + timedelta(seconds=1))
    assert not ApiKey("a", KEY.sha256, KEY.created, NEVER).is_expired(NOW + timedelta(days=99999))


def test_new_keys_are_long_different_and_short_enough_for_the_front():
    first, second = new_secret(), new_secret()

    assert first != second
    assert 43 < len(first) <= 55
