"""The channel under several writers."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.rollout.act.channel_store import ATTEMPTS, FIRST_PAUSE_S, LONGEST_PAUSE_S, ChannelStore
from tests.fakes.clock import ManualClock
from tests.fakes.store.object_store import MemoryObjectStore

NOW = ManualClock().now()


class BusyStore(MemoryObjectStore):
    """Somebody else writes the channel just before each of the next `rivals` writes."""

    rivals = 0

    def put_if(self, uri, data, *, etag):
        if self.rivals:
            self.rivals -= 1
            ChannelStore(Plain(self), Layout("s3://b"), "demo", ManualClock()).swap(refused(f"rival-{self.rivals}"))
        return super().put_if(uri, data, etag=etag)


class Plain:
    """The store beneath, without rivals."""

    def __init__(self, store):
        self.read_with_etag = store.read_with_etag
        self.put_if = lambda *args, **more: MemoryObjectStore.put_if(store, *args, **more)


def refused(run):
    return lambda channel: channel.refused("demo-1", at=NOW, run=run, reason="")


@pytest.fixture
def store():
    return BusyStore()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def channel(store, clock):
    return ChannelStore(store, Layout("s3://b"), "demo", clock)


def test_before_the_first_release_the_channel_is_empty(channel):
    assert (channel.read().live, channel.read().history) == (None, ())


def test_a_change_is_made_on_top_of_what_a_rival_wrote(channel, store):
    store.rivals = 2

    channel.swap(refused("mine"))

    assert [event.run for event in channel.read().history] == ["mine", "rival-0", "rival-1"]


def test_a_change_that_changes_nothing_writes_nothing(channel, store):
    channel.swap(refused("mine"))
    store.written.clear()

    channel.swap(refused("mine"))

    assert store.written == []


def test_after_each_lost_race_it_waits_for_a_random_and_growing_time(channel, store, clock):
    store.rivals = 8

    channel.swap(refused("mine"))

    assert len(clock.slept) == 8
    assert all(pause <= LONGEST_PAUSE_S for pause in clock.slept)
    assert max(clock.slept) > 2 * FIRST_PAUSE_S
    assert len(set(clock.slept)) == 8


class Hasty:
    """Real time, fifty times as fast."""

    def sleep(self, seconds):
        time.sleep(seconds / 50)


class Slow(MemoryObjectStore):
    """A read takes a moment, so that racers read the same state."""

    def read_with_etag(self, uri):
        found = super().read_with_etag(uri)
        time.sleep(0.001)
        return found


def test_of_many_writers_at_once_none_gives_up():
    store, racers = Slow(), 40

    def race(number):
        ChannelStore(store, Layout("s3://b"), "demo", Hasty()).swap(refused(f"run-{number}"))

    with ThreadPoolExecutor(racers) as pool:
        list(pool.map(race, range(racers)))

    history = ChannelStore(store, Layout("s3://b"), "demo", Hasty()).read().history
    assert {event.run for event in history} == {f"run-{number}" for number in range(racers)}


def test_rivals_without_end_are_reported(channel, store):
    store.rivals = 10 * ATTEMPTS

    with pytest.raises(UnavailableError) as caught:
        channel.swap(refused("mine"))

    assert caught.value.what.endswith(f"{ATTEMPTS} times in a row")


def test_a_channel_that_was_cut_is_named(channel, store):
    store.put_bytes("s3://b/channels/demo.json", b'{"name": "de')

    with pytest.raises(InputError) as caught:
        channel.read()

    assert caught.value.what.startswith("s3://b/channels/demo.json is not valid JSON")
