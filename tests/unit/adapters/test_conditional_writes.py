"""`slipway setup` refuses a store in which two writers could both believe they have won."""

import pytest

from slipway.cli.cluster.setup import conditional_writes
from slipway.tasks.adapters.store.conditional_writes import check_conditional_writes
from slipway.tasks.adapters.store.object_store import DeniedError, LostRaceError, UnsupportedError
from slipway.tasks.contracts.errors import InputError, UnavailableError
from tests.fakes.store.object_store import MemoryObjectStore

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


class IgnoresBareEtags(MemoryObjectStore):
    """Takes an ETag without quotes for no condition."""

    def put_if(self, uri, data, *, etag):
        if etag is not None and not etag.startswith('"'):
            self.put_bytes(uri, data)
            return self.describe(uri).etag
        return super().put_if(uri, data, etag=etag)


class Failing(MemoryObjectStore):
    """Answers every conditional write with this error."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def put_if(self, uri, data, *, etag):
        raise self.error


class Versioned(MemoryObjectStore):
    """Refuses every ETag, as Ceph does where a bucket keeps versions."""

    def put_if(self, uri, data, *, etag):
        if etag is not None:
            raise LostRaceError(f"{uri} was changed")
        return super().put_if(uri, data, etag=etag)


def test_a_store_that_keeps_conditions_is_accepted_and_left_as_it_was():
    store = MemoryObjectStore()

    assert check_conditional_writes(store, ROOT) == "conditional writes work"
    assert store.objects == {}


def test_what_may_not_be_deleted_again_is_named():
    store = MemoryObjectStore()
    store.protected.add("")

    said = check_conditional_writes(store, ROOT)

    (left,) = store.objects
    assert said.startswith(f"conditional writes work; {left} could not be deleted")


def test_credentials_that_may_not_write_are_no_reason_to_refuse_the_store():
    said = conditional_writes(Failing(DeniedError("the store rejects the credentials")), ROOT)

    assert said == "conditional writes were not checked: the store rejects the credentials"


@pytest.mark.parametrize(
    "error", [UnavailableError("no answer"), DeniedError("rejected"), InputError("the bucket is in another region")]
)
def test_another_error_is_not_taken_for_missing_conditions(error):
    with pytest.raises(type(error)) as caught:
        check_conditional_writes(Failing(error), ROOT)

    assert caught.value is error


@pytest.mark.parametrize(
    ("store", "found"),
    [
        (Careless("creating"), "If-None-Match: * replaced an object"),
        (Careless("swapping"), "If-Match with an earlier ETag replaced the object"),
        (Versioned(), "If-Match refused the object's own ETag"),
        (IgnoresBareEtags(), "If-Match with an earlier ETag without quotes replaced the object"),
        (Failing(UnsupportedError("rejected", found="NotImplemented")), "NotImplemented"),
    ],
)
def test_a_store_that_does_not_is_refused_with_what_it_did_and_left_as_it_was(store, found):
    with pytest.raises(InputError) as caught:
        check_conditional_writes(store, ROOT)

    assert caught.value.found == found
    assert store.objects == {}
