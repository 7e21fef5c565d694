"""Addresses of pods and Services: two /16 ranges in 127.0.0.0/8 that belong to one state folder.

A server holds its range by listening on the range's first address, so two servers never assign the same address. While
none runs, links from ranges to folders keep the range for its folder, whose Services and pods have addresses in it.
"""

import contextlib
import errno
import itertools
import json
import os
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

POD_OCTETS = range(64, 128)
SERVICE_OFFSET = 64  # 127.64 goes with 127.128
GUARD_PORT = 10250
LAST_HOST = 65_000
RECORD = "addresses.json"
OWNERS = Path("/tmp") / f"loopback-cluster-addresses-{os.getuid()}"  # noqa: S108 - the same for all TMPDIRs of a user
"""A link for each range that a folder has. It counts while the folder has recorded the range."""


class AddressError(Exception):
    """No address is free."""


class Addresses:
    """Assigns addresses from one state folder's ranges."""

    def __init__(self, state: Path, octets: Sequence[int] = POD_OCTETS, owners: Path = OWNERS) -> None:
        """Take the folder's ranges again, or choose free ones if the folder is new.

        Raises:
            AddressError: the ranges are taken, or the system has no loopback range.
        """
        record = state / RECORD
        if (own := _recorded(state)) is not None:
            chosen = [own]
        else:  # of other folders' ranges, which come last, first that of the server that started longest ago
            chosen = sorted(
                random.sample(octets, len(octets)), key=lambda octet: _owned_since(owners / str(octet), octet)
            )
        self._octet, self._guard = _claim(chosen)
        record.write_text(json.dumps({"octet": self._octet}))
        _own(owners / str(self._octet), state)
        self._pods = itertools.cycle(range(2, LAST_HOST))
        self._services = itertools.cycle(range(2, LAST_HOST))

    @property
    def node(self) -> str:
        """The node's own address."""
        return f"127.{self._octet}.0.1"

    @property
    def service_range(self) -> str:
        """The first two octets of Service addresses, with a trailing dot."""
        return f"127.{self._octet + SERVICE_OFFSET}."

    def pod(self, taken: Callable[[str], bool]) -> str:
        """The next address of a pod that is not `taken`."""
        return self._next(self._octet, self._pods, taken)

    def service(self, taken: Callable[[str], bool]) -> str:
        """The next address of a Service that is not `taken`."""
        return self._next(self._octet + SERVICE_OFFSET, self._services, taken)

    def close(self) -> None:
        """Release the ranges."""
        self._guard.close()

    @staticmethod
    def _next(octet: int, hosts: Iterable[int], taken: Callable[[str], bool]) -> str:
        for host in itertools.islice(hosts, LAST_HOST):
            address = f"127.{octet}.{host >> 8}.{host & 255}"
            if not taken(address):
                return address
        raise AddressError(f"every address of 127.{octet}.0.0/16 is in use")


def _recorded(state: Path) -> int | None:
    """The second octet of the range that the folder has; None without a whole record."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((state / RECORD).read_text())["octet"])
    return None


def _owned_since(link: Path, octet: int) -> float:
    """When the link was made; 0 unless it is this user's and leads to a folder that is there and has this range."""
    with contextlib.suppress(OSError):
        made = link.lstat()
        if made.st_uid == os.getuid() and _recorded(link) == octet:
            return made.st_mtime
    return 0.0


def _own(link: Path, state: Path) -> None:
    """Have it lead to the folder. Where it cannot be made, the range is kept only while a server runs."""
    new = link.with_name(f".{link.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        link.parent.mkdir(mode=0o700, exist_ok=True)
        new.symlink_to(state.resolve())
        new.replace(link)


def _claim(octets: Iterable[int]) -> tuple[int, socket.socket]:
    for octet in octets:
        guard = socket.socket()
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            guard.bind((f"127.{octet}.0.1", GUARD_PORT))
            guard.listen(1)
        except OSError as error:
            guard.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise AddressError(f"127.{octet}.0.1 is not a local address; the cluster needs Linux") from error
            continue
        return octet, guard
    raise AddressError("another server holds this folder's range of addresses; stop it, or use another state folder")
