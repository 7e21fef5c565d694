"""Every object of the cluster, its versions and the log of changes that watches read.

Objects from the store are shared: copy one before changing it. Each change is in the database file before the call
returns, so a killed server loses none.
"""

import asyncio
import copy
import json
import sqlite3
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .resources import RESOURCES, Object, Resource
from .status import already_exists, conflict, gone, not_found

WATCH_LOG_LENGTH = 2000
Key = tuple[str, str]


@dataclass(frozen=True)
class Change:
    """A change of an object; `new` is None if it was deleted, `old` if it was created."""

    version: int
    resource: Resource
    old: Object | None
    new: Object | None

    @property
    def object(self) -> Object:
        """The new object, or the deleted one."""
        return self.new or self.old or {}


def now() -> str:
    """The time as Kubernetes writes it, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of(item: Object) -> Key:
    """Namespace (empty for kinds of the whole cluster) and name."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


class Store:
    """Objects by kind, with one counter of versions over all kinds, kept in an SQLite file."""

    def __init__(self, file: Path) -> None:
        """Open or create `file`. A watch from an earlier version gets a 410."""
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=OFF")  # survives the end of the process; more is not promised
        self._database.execute("CREATE TABLE IF NOT EXISTS counter (version INTEGER)")
        columns = "kind TEXT, namespace TEXT, name TEXT, body TEXT, PRIMARY KEY (kind, namespace, name)"
        self._database.execute(f"CREATE TABLE IF NOT EXISTS objects ({columns})")
        row = self._database.execute("SELECT max(version) FROM counter").fetchone()
        self.version = int(row[0] or 1)
        self._objects: dict[str, dict[Key, Object]] = {resource.qualified: {} for resource in RESOURCES}
        for kind, namespace, name, body in self._database.execute("SELECT kind, namespace, name, body FROM objects"):
            self._objects.setdefault(kind, {})[namespace, name] = json.loads(body)
        self._log: dict[str, deque[Change]] = {resource.qualified: deque() for resource in RESOURCES}
        self._forgotten = {resource.qualified: self.version for resource in RESOURCES}
        self._listeners: list[Callable[[Change], None]] = []
        self._bells: set[asyncio.Event] = set()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object."""
        return self._objects[resource.qualified].get((namespace, name))

    def need(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object that must exist.

        Raises:
            ApiError: 404.
        """
        stored = self.get(resource, namespace, name)
        if stored is None:
            raise not_found(resource, name)
        return stored

    def all(self, resource: Resource, namespace: str | None = None) -> list[Object]:
        """All objects of a kind, sorted by namespace and name; without `namespace`, from every namespace."""
        stored = self._objects[resource.qualified]
        return [stored[key] for key in sorted(stored) if not namespace or key[0] == namespace]

    def create(self, resource: Resource, item: Object) -> Object:
        """Add an object.

        Raises:
            ApiError: 409, the name is taken.
        """
        if key_of(item) in self._objects[resource.qualified]:
            raise already_exists(resource, item["metadata"]["name"])
        item = copy.deepcopy(item)
        item["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        item["metadata"].pop("managedFields", None)
        return self._put(resource, None, item)

    def update(self, resource: Resource, item: Object) -> Object:
        """Replace an object, unless nothing changes.

        Raises:
            ApiError: 404, or 409 if the resourceVersion or uid of `item` is not the stored one.
        """
        old = self.need(resource, *key_of(item))
        meta, stored = item["metadata"], old["metadata"]
        if meta.get("resourceVersion", stored["resourceVersion"]) != stored["resourceVersion"]:
            raise conflict(resource, meta["name"])
        if meta.get("uid", stored["uid"]) != stored["uid"]:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {stored['uid']}"
            raise conflict(resource, meta["name"], why)
        item = copy.deepcopy(item)
        kept = ("uid", "creationTimestamp", "generation", "resourceVersion")
        item["metadata"] |= {field: stored[field] for field in kept}
        item["metadata"].pop("managedFields", None)
        if item.get("spec") != old.get("spec"):
            item["metadata"]["generation"] += 1
        return old if item == old else self._put(resource, old, item)

    def modify(self, resource: Resource, namespace: str, name: str, change: Callable[[Object], None]) -> Object | None:
        """Change a copy of the stored object and store it; None if the object is gone."""
        old = self.get(resource, namespace, name)
        if old is None:
            return None
        item = copy.deepcopy(old)
        change(item)
        return self.update(resource, item)

    def remove(self, resource: Resource, namespace: str, name: str) -> Object:
        """Delete an object.

        Raises:
            ApiError: 404.
        """
        old = self.need(resource, namespace, name)
        self.version += 1
        last = old | {"metadata": old["metadata"] | {"resourceVersion": str(self.version)}}
        del self._objects[resource.qualified][namespace, name]
        self._write("DELETE FROM objects WHERE kind=? AND namespace=? AND name=?", resource.qualified, namespace, name)
        self._announce(Change(self.version, resource, last, None))
        return last

    def since(self, resource: Resource, version: int) -> list[Change]:
        """The changes of a kind after `version`, oldest first.

        Raises:
            ApiError: 410, the log no longer reaches back so far.
        """
        oldest = self._forgotten[resource.qualified]
        if version < oldest:
            raise gone(version, oldest)
        newer = []
        for change in reversed(self._log[resource.qualified]):
            if change.version <= version:
                break
            newer.append(change)
        return newer[::-1]

    def subscribe(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` at once with every change; it must not block."""
        self._listeners.append(listener)

    @contextmanager
    def bell(self) -> Iterator[asyncio.Event]:
        """An event that is set with every change; the waiting caller clears it."""
        event = asyncio.Event()
        self._bells.add(event)
        try:
            yield event
        finally:
            self._bells.discard(event)

    def _put(self, resource: Resource, old: Object | None, item: Object) -> Object:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        namespace, name = key_of(item)
        self._objects[resource.qualified][namespace, name] = item
        statement = "INSERT OR REPLACE INTO objects (kind, namespace, name, body) VALUES (?, ?, ?, ?)"
        self._write(statement, resource.qualified, namespace, name, json.dumps(item))
        self._announce(Change(self.version, resource, old, item))
        return item

    def _write(self, statement: str, *values: str) -> None:
        self._database.execute("BEGIN")
        self._database.execute(statement, values)
        self._database.execute("DELETE FROM counter")
        self._database.execute("INSERT INTO counter VALUES (?)", (self.version,))
        self._database.execute("COMMIT")

    def _announce(self, change: Change) -> None:
        log = self._log[change.resource.qualified]
        log.append(change)
        if len(log) > WATCH_LOG_LENGTH:
            self._forgotten[change.resource.qualified] = log.popleft().version
        for event in self._bells:
            event.set()
        for listener in self._listeners:
            listener(change)
