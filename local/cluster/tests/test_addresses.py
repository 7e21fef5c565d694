"""A state folder keeps its range of addresses while no server runs on it."""

import os
import socket
from contextlib import ExitStack, suppress

import pytest

from ..addresses import POD_OCTETS, Addresses

KEPT_PORT = 10251


@pytest.fixture(scope="module")
def octets():
    """Two ranges that no cluster takes, and no other run of these tests, while a port of theirs is kept."""
    kept = []
    with ExitStack() as guards:
        for octet in range(2, POD_OCTETS.start):
            guard = guards.enter_context(socket.socket())
            with suppress(OSError):
                guard.bind((f"127.{octet}.0.1", KEPT_PORT))
                kept.append(octet)
            if len(kept) == 2:
                break
        yield tuple(kept)


@pytest.fixture
def started(tmp_path, octets):
    """The node's address of a server that ran on a folder; it has ended."""

    def start(name):
        (tmp_path / name).mkdir(exist_ok=True)
        addresses = Addresses(tmp_path / name, octets, tmp_path / "owners")
        addresses.close()
        return addresses.node

    return start


@pytest.mark.parametrize("attempt", range(8))
def test_a_new_folder_leaves_the_range_of_a_stopped_one_alone(started, attempt):
    first = started("first")

    assert started("second") != first
    assert started("first") == first


@pytest.mark.parametrize("attempt", range(8))
def test_the_range_of_a_folder_that_was_removed_is_free(started, tmp_path, attempt):
    first, second = started("first"), started("second")
    (tmp_path / "second" / "addresses.json").unlink()
    (tmp_path / "second").rmdir()

    assert started("third") == second != first


@pytest.mark.parametrize("attempt", range(8))
def test_where_every_range_belongs_to_a_stopped_folder_a_new_one_takes_that_of_the_oldest(started, tmp_path, attempt):
    _, second = started("first"), started("second")
    os.utime(tmp_path / "owners" / second.split(".")[1], (1, 1), follow_symlinks=False)

    assert started("third") == second


@pytest.mark.parametrize("record", ["", "{", "{}", "[]", '{"octet": null}'])
def test_a_folder_whose_record_is_damaged_takes_a_range_and_stops_no_other(started, tmp_path, record):
    started("first")
    (tmp_path / "first" / "addresses.json").write_text(record)

    assert started("second")
    assert started("first")
