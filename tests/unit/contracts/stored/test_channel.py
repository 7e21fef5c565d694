from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.tasks.contracts.stored.channel import HISTORY_LENGTH, Channel

START = datetime(2026, 1, 1, tzinfo=UTC)


def promoted(channel, release_id, *, keep=2, minute=0):
    at = START + timedelta(minutes=minute)
    return channel.promoted(release_id, f"s3://b/{release_id}", at=at, run=f"run-{release_id}", keep=keep)


def live(channel):
    return channel.live and channel.live.release_id


def test_a_promotion_remembers_what_was_live():
    channel = promoted(promoted(Channel(name="demo"), "a"), "b")

    assert live(channel) == "b"
    assert [entry.release_id for entry in channel.previous] == ["a"]


def test_promoting_what_is_live_changes_nothing():
    channel = promoted(Channel(name="demo"), "a")

    assert promoted(channel, "a", minute=5) == channel


def test_a_release_that_comes_back_is_not_remembered_twice():
    channel = promoted(promoted(promoted(Channel(name="demo"), "a", keep=3), "b", keep=3), "a", keep=3)

    assert (live(channel), [entry.release_id for entry in channel.previous]) == ("a", ["b"])


def test_rolling_back_brings_the_previous_release_back_and_forgets_the_bad_one():
    channel = promoted(promoted(Channel(name="demo"), "a"), "b").rolled_back(at=START, run="r", reason="slow")

    assert (live(channel), channel.previous) == ("a", ())
    assert (channel.history[0].event, channel.history[0].release_id, channel.history[0].reason) == (
        "rolled-back",
        "b",
        "slow",
    )


def test_a_channel_knows_what_became_of_each_release():
    channel = promoted(promoted(promoted(Channel(name="demo"), "a"), "b"), "c")
    channel = channel.refused("d", at=START, run="run-d", reason="gate")

    states = {name: channel.state_of(name) for name in "abcde"}
    after = channel.rolled_back(at=START, run="run-x", reason="errors")

    assert states == {"a": "promoted", "b": "previous", "c": "live", "d": "refused", "e": None}
    assert (after.state_of("c"), after.state_of("b")) == ("rolled-back", "live")


def test_there_is_nothing_before_the_first_release():
    with pytest.raises(ValueError, match="no previous release"):
        promoted(Channel(name="demo"), "a").rolled_back(at=START, run="r", reason="")


def test_a_refusal_moves_nothing_and_is_remembered_once_per_run():
    channel = promoted(Channel(name="demo"), "a")
    refused = channel.refused("b", at=START, run="r", reason="wrong answers")

    assert refused.live == channel.live
    assert refused.refused("b", at=START, run="r", reason="wrong answers") == refused
    assert len(refused.refused("b", at=START, run="r2", reason="again").history) == 3


@given(st.lists(st.sampled_from("abcdefgh"), max_size=30), st.integers(1, 5))
@settings(max_examples=60)
def test_a_channel_never_remembers_more_than_it_keeps_nor_a_release_twice(names, keep):
    channel = Channel(name="demo")
    for minute, name in enumerate(names):
        channel = promoted(channel, name, keep=keep, minute=minute)
        known = [live(channel), *(entry.release_id for entry in channel.previous)]

        assert live(channel) == name
        assert len(known) == len(set(known)) <= keep


def test_history_has_an_end():
    channel = Channel(name="demo")
    for number in range(HISTORY_LENGTH + 5):
        channel = promoted(channel, f"r{number}")

    assert len(channel.history) == HISTORY_LENGTH
    assert channel.history[0].release_id == f"r{HISTORY_LENGTH + 4}"
