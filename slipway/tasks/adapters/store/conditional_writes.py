"""Finds out whether an object store ignores the conditions of a write, on which channels, claims and removals rely."""

import contextlib
import uuid

from slipway.tasks.adapters.store.object_store import LostRaceError, ObjectStore, UnsupportedError
from slipway.tasks.contracts.errors import InputError, PipelineError

FOLDER = "setup"
CONDITIONS = "PutObject with If-None-Match and If-Match as in Amazon S3"


def check_conditional_writes(store: ObjectStore, root: str) -> str:
    """Write, swap and remove one small object below `root`; return a line about what was found.

    In a store that ignores conditions, both of two writers believe that they have won. Ceph with versions ignores
    If-None-Match and refuses every If-Match (seen with 16.2.15); Swift has neither (2.30). Whether a store compares and
    writes in one step cannot be seen from here.

    Raises:
        DeniedError: the credentials may not write there.
        InputError: the store does not keep the conditions.
        UnavailableError: it does not answer.
    """
    uri = f"{root}/{FOLDER}/{uuid.uuid4().hex}"
    try:
        _try_conditions(store, uri)
    except PipelineError:
        with contextlib.suppress(PipelineError):
            store.delete([uri])
        raise
    left = store.delete([uri])
    return f"conditional writes work{f'; {uri} could not be deleted: {left[uri]}' if left else ''}"


def _try_conditions(store: ObjectStore, uri: str) -> None:
    try:
        first = store.put_if(uri, b"1", etag=None)
        _expect_refusal(store, uri, None, "If-None-Match: * replaced an object")
        try:
            store.put_if(uri, b"2", etag=first)
        except LostRaceError as error:
            raise _unusable(uri, "If-Match refused the object's own ETag") from error
        _expect_refusal(store, uri, first, "If-Match with an earlier ETag replaced the object")
        # the form in which some stores want it (S3ObjectStore.put_if)
        bare = first.strip('"')
        _expect_refusal(store, uri, bare, "If-Match with an earlier ETag without quotes replaced the object")
    except UnsupportedError as error:
        raise _unusable(uri, error.found) from error


def _expect_refusal(store: ObjectStore, uri: str, etag: str | None, otherwise: str) -> None:
    try:
        store.put_if(uri, b"3", etag=etag)
    except InputError:  # also where it takes an ETag without quotes for an invalid one
        return
    raise _unusable(uri, otherwise)


def _unusable(uri: str, found: str) -> InputError:
    return InputError(
        f"the object store does not keep the conditions of writes to {uri}",
        found=found,
        expected=CONDITIONS,
        remedy="Use another store. On Ceph, use a bucket without versions.",
    )
