"""The channel under several writers."""

import pytest

from tasks.contracts.artifact import Layout
from tasks.contracts.errors import InputError, UnavailableError
from tasks.rollout.channel_store import ATTEMPTS, ChannelStore
from tests.fakes.clock import ManualClock
from tests.fakes.object_store import MemoryObjectStore

NOW = ManualClock().now()


class BusyStore(MemoryObjectStore):
    """Somebody else writes the channel just before each of the next `rivals` writes."""

    rivals = 0

    def put_if(self, uri, data, *, etag):
        if self.rivals:
            self.rivals -= 1
            ChannelStore(Plain(self), Layout("s3://b"), "demo").swap(refused(f"rival-{self.rivals}"))
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
def channel(store):
    return ChannelStore(store, Layout("s3://b"), "demo")


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


def test_rivals_without_end_are_reported(channel, store):
    store.rivals = 10 * ATTEMPTS

    with pytest.raises(UnavailableError, match=f"{ATTEMPTS} times in a row"):
        channel.swap(refused("mine"))


def test_a_channel_that_was_cut_is_named(channel, store):
    store.put_bytes("s3://b/channels/demo.json", b'{"name": "de')

    with pytest.raises(InputError, match=r"channels/demo\.json is no JSON"):
        channel.read()
