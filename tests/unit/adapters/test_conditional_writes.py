"""`slipway setup` refuses a store in which two writers could both believe they have won."""

import pytest

from tasks.adapters.conditional_writes import check_conditional_writes
from tasks.adapters.object_store import LostRaceError
from tasks.contracts.errors import InputError
from tests.fakes.object_store import MemoryObjectStore

ROOT = "s3://models"


class Careless(MemoryObjectStore):
    """Ignores the conditions that are named `creating` or `swapping`."""

    def __init__(self, ignored):
        super().__init__()
        self.ignored = ignored

    def put_if(self, uri, data, *, etag):
        if ("creating" if etag is None else "swapping") == self.ignored:
            self.put_bytes(uri, data)
            return self.describe(uri).etag
        return super().put_if(uri, data, etag=etag)


class Versioned(MemoryObjectStore):
    """Refuses every ETag, as Ceph does where a bucket keeps versions."""

    def put_if(self, uri, data, *, etag):
        if etag is not None:
            raise LostRaceError(f"{uri} was changed")
        return super().put_if(uri, data, etag=etag)


def test_a_store_that_keeps_conditions_is_accepted_and_left_as_it_was():
    store = MemoryObjectStore()

    check_conditional_writes(store, ROOT)

    assert store.objects == {}


@pytest.mark.parametrize(
    ("store", "found"),
    [
        (Careless("creating"), "If-None-Match: * replaced an object"),
        (Careless("swapping"), "If-Match with an earlier ETag replaced the object"),
        (Versioned(), "If-Match with the object's ETag was refused"),
    ],
)
def test_a_store_that_does_not_is_refused_with_what_it_did_and_left_as_it_was(store, found):
    with pytest.raises(InputError) as caught:
        check_conditional_writes(store, ROOT)

    assert caught.value.found == found
    assert store.objects == {}
