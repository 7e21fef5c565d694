"""Finds out whether an object store keeps the conditions of a write, on which channels, claims and removals rely."""

import uuid

from tasks.adapters.object_store import LostRaceError, ObjectStore
from tasks.contracts.errors import InputError

FOLDER = "setup"


def check_conditional_writes(store: ObjectStore, root: str) -> None:
    """Write, swap and remove one small object below `root`.

    Some stores ignore the conditions, so that of two writers both believe they have won. Ceph does with versioned
    buckets (seen with 16.2.15), and Swift has none (2.30).

    Raises:
        InputError: the store does not keep them, or the credentials may not write.
        UnavailableError: it does not answer.
    """
    uri = f"{root}/{FOLDER}/{uuid.uuid4().hex}"
    try:
        first = store.put_if(uri, b"1", etag=None)
        _refused(store, uri, None, "If-None-Match: * replaced an object")
        try:
            store.put_if(uri, b"2", etag=first)
        except LostRaceError as error:
            raise _unusable(uri, "If-Match with the object's ETag was refused") from error
        _refused(store, uri, first, "If-Match with an earlier ETag replaced the object")
    finally:
        store.delete([uri])


def _refused(store: ObjectStore, uri: str, etag: str | None, otherwise: str) -> None:
    try:
        store.put_if(uri, b"3", etag=etag)
    except LostRaceError:
        return
    raise _unusable(uri, otherwise)


def _unusable(uri: str, found: str) -> InputError:
    return InputError(
        f"the object store does not keep the conditions of writes to {uri}",
        found=found,
        expected="PutObject with If-None-Match and If-Match as in Amazon S3",
        remedy="Use a bucket without versions, as Ceph keeps conditions only there, or another store.",
    )
